"""Ranks per node: counted from its devices and processors, without importing a framework."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from everstep.launch.command_line.device_files import VENDORS, Vendor
from everstep.launch.command_line.option_parser import UsageError

_WORDS = ("auto", "gpu", "xpu", "npu", "cpu")


def ranks_per_node(
    text: str, environ: Mapping[str, str] = os.environ, root: Path = Path("/")
) -> int:
    """Return how many ranks ``8``, ``auto``, ``gpu`` or ``cpu`` means here. Raises UsageError."""
    # As torchrun: xpu and npu are of one vendor, gpu and auto of any.
    vendors = [vendor for vendor in VENDORS if vendor.word == text and text != "gpu"] or VENDORS
    devices, vendor = most_devices(environ, root, vendors)
    if text == "cpu" or (text == "auto" and not devices):
        return len(os.sched_getaffinity(0))
    if text not in _WORDS:
        return _number(text, devices, vendor)
    if not devices:
        what = text.upper()
        raise UsageError(f"--nproc-per-node {text}: no {what} is seen here; give a number, or cpu")
    return devices


def _number(text: str, devices: int, vendor: Vendor) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) < 1:
        raise UsageError(f"--nproc-per-node {text!r}: expected a number above 0, auto, gpu or cpu")
    ranks = int(text)
    if devices and ranks > devices:
        raise UsageError(
            f"--nproc-per-node {ranks}: this node has {devices} {vendor.device}"
            f"{'s' * (devices > 1)}; give at most {devices}, or set {vendor.masks[-1]}= for ranks"
            " that need none"
        )
    return ranks


def most_devices(
    environ: Mapping[str, str], root: Path, vendors: Sequence[Vendor] = VENDORS
) -> tuple[int, Vendor]:
    """Return how many devices of one vendor a process that is started here would see, and whose."""
    counts = ((_visible(vendor, environ, root), vendor) for vendor in vendors)
    return max(counts, key=lambda counted: counted[0])


def _visible(vendor: Vendor, environ: Mapping[str, str], root: Path) -> int:
    count = vendor.present(root, environ)
    for mask in vendor.masks:
        chosen = environ.get(mask)
        if chosen is not None and count:
            count = _chosen(chosen, count)
    return count


def _chosen(mask: str, present: int) -> int:
    """Return how many devices a mask leaves: those before the first that is none."""
    names = [name.strip() for name in mask.split(",")]
    valid = next((i for i, name in enumerate(names) if name in ("", "-1")), len(names))
    is_number = all(name.isdigit() for name in names[:valid])
    # Parts of devices (MIG, tiles) are named, and there may be more of them than devices.
    return min(valid, present) if is_number else valid
