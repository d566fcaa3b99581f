"""Devices that a rank's process has open: accelerators, by the PCI addresses of their files."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# Files of /dev that stand for an accelerator, of any vendor: NVIDIA, AMD and Intel (render nodes),
# Habana and others of the kernel's own class, Ascend, Cambricon, Kunlunxin, Hygon.
_ACCELERATOR = re.compile(
    r"/dev/(?:nvidia\d+|dri/renderD\d+|accel/accel\d+|davinci\d+|cambricon_dev\d+|xpu\d+|hcu\d+)$"
)
_NVIDIA = re.compile(r"/dev/nvidia(\d+)$")
_MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_FILES_MAX = 4096
_DEVICES_MAX = 64


def open_devices(
    pid: int, proc: Path = Path("/proc"), sys: Path = Path("/sys")
) -> tuple[str, ...] | None:
    """Return the PCI addresses of accelerators that a process has open; () where it has none.

    None where that cannot be told: its files cannot be listed, or one of them has no address.
    """
    try:
        files = {file for file in _files(proc / str(pid) / "fd") if _ACCELERATOR.match(file[0])}
    except OSError:
        return None
    found = {address_of(path, number, proc, sys) for path, number in files}
    return None if "" in found else tuple(sorted(found))[:_DEVICES_MAX]


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield what the open character devices are called, with their numbers. Raises OSError."""
    for name in os.listdir(folder)[:_FILES_MAX]:
        with suppress(OSError):
            path = os.readlink(folder / name)
            # Only of devices: a file of a file system that hangs would be waited for.
            if path.startswith("/dev/"):
                found = os.stat(folder / name)
                if stat.S_ISCHR(found.st_mode):
                    yield path, found.st_rdev


def address_of(path: str, number: int, proc: Path, sys: Path) -> str:
    """Return the PCI address of a device's file; "" where nobody tells it."""
    nvidia = _NVIDIA.match(path)
    if nvidia is not None:
        return _of_nvidia(int(nvidia[1]), proc)
    device = sys / "dev/char" / f"{os.major(number)}:{os.minor(number)}" / "device"
    address = device.resolve().name
    return address if _PCI.fullmatch(address) else ""


def _of_nvidia(minor: int, proc: Path) -> str:
    with suppress(OSError):
        for gpu in (proc / "driver/nvidia/gpus").iterdir():
            told = _MINOR.search((gpu / "information").read_text(errors="replace"))
            if told is not None and int(told[1]) == minor:
                return gpu.name.lower()
    return ""
