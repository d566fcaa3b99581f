"""How many ranks a node can have: its GPUs and processors, counted without a framework."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from everstep.launch.command_line.option_parser import UsageError

_WORDS = ("auto", "gpu", "cpu")
# What the container toolkit writes for "all of them" or "none by this way".
_NO_LIST = frozenset({"", "all", "none", "void"})


def ranks_per_node(
    text: str, environ: Mapping[str, str] = os.environ, root: Path = Path("/")
) -> int:
    """Return how many ranks ``8``, ``auto``, ``gpu`` or ``cpu`` means here. Raises UsageError."""
    devices = count_devices(environ, root)
    if text == "cpu" or (text == "auto" and not devices):
        return len(os.sched_getaffinity(0))
    if text in _WORDS:
        if devices:
            return devices
        raise UsageError("--nproc-per-node gpu: no GPU is seen here; give a number, or cpu")
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) < 1:
        raise UsageError(f"--nproc-per-node {text!r}: expected a number above 0, auto, gpu or cpu")
    ranks = int(text)
    if devices and ranks > devices:
        raise UsageError(
            f"--nproc-per-node {ranks}: this node has {devices} GPU{'s' * (devices > 1)}; give at"
            f" most {devices}, or set CUDA_VISIBLE_DEVICES= for ranks that need none"
        )
    return ranks


def count_devices(environ: Mapping[str, str], root: Path = Path("/")) -> int:
    """Return how many GPUs a process that is started here would see."""
    present = _present(environ, root)
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None or not present:
        return present
    # As CUDA reads it: what comes after the first name that is none does not count.
    names = [name.strip() for name in chosen.split(",")]
    valid = next((i for i, name in enumerate(names) if name in ("", "-1")), len(names))
    is_number = all(name.isdigit() for name in names[:valid])
    # MIG instances are named, and there may be more of them than GPUs.
    return min(valid, present) if is_number else valid


def _present(environ: Mapping[str, str], root: Path) -> int:
    files = [path for path in (root / "dev").glob("nvidia*") if path.name[6:].isdigit()]
    if files:  # in a container these are its own
        return len(files)
    # The driver makes the files on demand, but lists the GPUs of the whole machine here.
    listed = len(list((root / "proc/driver/nvidia/gpus").glob("*")))
    given = environ.get("NVIDIA_VISIBLE_DEVICES", "all")
    return min(listed, len(given.split(","))) if given not in _NO_LIST else listed
