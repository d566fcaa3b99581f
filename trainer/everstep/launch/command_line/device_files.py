"""Device files in /dev by vendor, to count a node's accelerators without a framework."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

# What the container toolkit writes for "all of them" or "none by this way".
_NO_LIST = frozenset({"", "all", "none", "void"})
# On the board, and no accelerator: the graphics of Intel's processors are always device 2 of bus 0.
_INTEGRATED = re.compile(r"0000:00:02\.\d")
_INTEL = "0x8086"
_MINOR = re.compile(r"^drm_render_minor (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Vendor:
    """Vendor of accelerators, and how its devices are counted."""

    # As in --nproc-per-node.
    word: str
    # Name of one device, for messages.
    device: str
    present: Callable[[Path, Mapping[str, str]], int]
    # Variables that choose among them, each among what the one before it leaves; the last one is
    # that which people set.
    masks: tuple[str, ...]


def _nvidia(root: Path, environ: Mapping[str, str]) -> int:
    files = [path for path in (root / "dev").glob("nvidia*") if path.name[6:].isdigit()]
    if files:  # in a container these are its own
        return len(files)
    # The driver makes the files on demand, but lists the GPUs of the whole machine here.
    listed = len(list((root / "proc/driver/nvidia/gpus").glob("*")))
    given = environ.get("NVIDIA_VISIBLE_DEVICES", "all")
    return min(listed, len(given.split(","))) if given not in _NO_LIST else listed


def _amd(root: Path, _: Mapping[str, str]) -> int:
    if not os.access(root / "dev/kfd", os.R_OK | os.W_OK):  # not for this user's computing
        return 0
    nodes = (root / "sys/class/kfd/kfd/topology/nodes").glob("*")
    return sum(_is_amd_gpu(root, node) for node in nodes)


def _is_amd_gpu(root: Path, node: Path) -> bool:
    """Return whether a node of the kernel's topology is a GPU that this container has."""
    if _content(node / "gpu_id") in ("", "0"):  # a processor
        return False
    minor = _MINOR.search(_content(node / "properties"))
    return minor is not None and (root / "dev/dri" / f"renderD{minor[1]}").exists()


def _ascend(root: Path, _: Mapping[str, str]) -> int:
    files = (root / "dev").glob("davinci*")
    return sum(path.name.removeprefix("davinci").isdigit() for path in files)


def _intel(root: Path, environ: Mapping[str, str]) -> int:
    whole = environ.get("ZE_FLAT_DEVICE_HIERARCHY", "").upper() == "COMPOSITE"
    count = 0
    for path in (root / "sys/class/drm").glob("renderD*"):
        device = path / "device"
        is_one = _content(device / "vendor") == _INTEL and not _INTEGRATED.fullmatch(
            device.resolve().name
        )
        if is_one and (root / "dev/dri" / path.name).exists():
            count += 1 if whole else _tiles(device)
    return count


def _tiles(device: Path) -> int:
    """Return of how many parts a GPU of Intel consists, by the driver xe, or else i915."""
    found = list(device.glob("tile[0-9]*")) or list(device.glob("drm/card*/gt/gt[0-9]*"))
    return max(1, len(found))


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:  # a GPU that is not this container's
        return ""


VENDORS = (
    Vendor("gpu", "GPU", _nvidia, ("CUDA_VISIBLE_DEVICES",)),
    Vendor(
        "gpu",
        "AMD GPU",
        _amd,
        # HIP takes CUDA's for its own as well.
        ("ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    ),
    Vendor("npu", "Ascend NPU", _ascend, ("ASCEND_RT_VISIBLE_DEVICES",)),
    # Each tile is a device (ZE_FLAT_DEVICE_HIERARCHY=FLAT), unless they are asked for as a whole.
    Vendor("xpu", "Intel GPU", _intel, ("ZE_AFFINITY_MASK",)),
)
