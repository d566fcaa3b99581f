"""Libraries that a rank has mapped, with their versions: whether it hangs on a published bug."""

import contextlib
import os
import re
import stat
from pathlib import Path

from everstep_common.hangs.reports.rank_report import LIBRARIES_MAX, Library

# Starts of file names, and the names that the table of known faults uses.
_NAMES = {
    "libtorch_cpu.so": "torch",
    "libnccl.so": "nccl",
    "librccl.so": "rccl",
    "libnccl-net-ofi.so": "ofi_nccl",
    "libnccl-net.so": "nccl_net",
    "libcuda.so": "cuda_driver",
    "libcudart.so": "cudart",
    "libcudart-": "cudart",
    "libcudnn.so": "cudnn",
    "libcublas.so": "cublas",
    "libnvshmem_host.so": "nvshmem",
    "deep_ep_cpp": "deepep",
    "libgloo.so": "gloo",
    "libmpi.so": "mpi",
    "libucp.so": "ucx",
    "libibverbs.so": "ibverbs",
}
_MAPS_MAX = 8 * 1024 * 1024
_SMALL_FILE = 16 * 1024
_IN_NAME = re.compile(r"\.so\.(\d+(?:\.\d+)+)$|-(\d+(?:\.\d+)+)[-.]")
_TORCH_VERSION = re.compile(r"__version__ = ['\"]([\w.+-]{1,40})['\"]")
_DIST_INFO = re.compile(r"-(\d[\w.+]*)\.dist-info$")


def mapped(pid: int, proc: Path = Path("/proc")) -> list[str]:
    """Return the files of the libraries of interest. Raises OSError."""
    with (proc / str(pid) / "maps").open("rb") as file:
        lines = file.read(_MAPS_MAX).decode(errors="replace").splitlines()
    # proc_pid_maps(5): addresses, rights, offset, device, inode, path.
    paths = dict.fromkeys(words[5] for line in lines if len(words := line.split(None, 5)) == 6)
    return [path for path in paths if _name(path)]


def libraries(paths: list[str]) -> tuple[Library, ...]:
    """Return names and versions; "" where neither its file nor its package says one."""
    found: dict[str, str] = {}
    for path in paths:
        name = _name(path)
        if not found.get(name):
            found[name] = version(path)
    return tuple(Library(name, text[:40]) for name, text in sorted(found.items()))[:LIBRARIES_MAX]


def with_machine(found: tuple[Library, ...]) -> tuple[Library, ...]:
    """Return libraries with processor and kernel, by which known faults can be told as well.

    Of a rank whose libraries are not known that would say that it has none.
    """
    here = os.uname()
    node = (Library("machine", here.machine[:40]), Library("kernel", here.release[:40]))
    return (*found, *node) if found else ()


def version(path: str) -> str:
    """Return the version of one library."""
    if _name(path) == "torch":
        return _of_torch(Path(path).parent.parent / "version.py")
    if in_name := _IN_NAME.search(os.path.basename(path)):
        return in_name[1] or in_name[2]
    return _of_package(Path(path))


def _name(path: str) -> str:
    base = os.path.basename(path)
    return next((name for start, name in _NAMES.items() if base.startswith(start)), "")


def _of_torch(path: Path) -> str:
    with contextlib.suppress(OSError):
        # A pipe in its place must not keep anybody waiting.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(number, "rb") as file:
            if stat.S_ISREG(os.fstat(number).st_mode):
                text = file.read(_SMALL_FILE).decode(errors="replace")
                return found[1] if (found := _TORCH_VERSION.search(text)) else ""
    return ""


def _of_package(path: Path) -> str:
    """Return what the installed package says: site-packages/nvidia/nccl/lib → nvidia_nccl_cu12."""
    place = next((one for one in path.parents if one.name.endswith("-packages")), None)
    if place is None:
        return ""
    parts = [part for part in path.relative_to(place).parts[:-1] if part != "lib"]
    stem = "_".join(parts) or path.name.partition(".")[0].removesuffix("_cpp")
    with contextlib.suppress(OSError):
        for entry in os.listdir(place):
            if entry.startswith((f"{stem}_cu", f"{stem}-")) and (told := _DIST_INFO.search(entry)):
                return told[1]
    return ""
