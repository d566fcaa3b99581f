"""Tuning of glibc's memcpy: large copies bypass the caches, where glibc believes these too large.

glibc's memcpy begins to write past the caches (non-temporal stores) at three quarters of a core's
share of the last cache: 1 to 4 MiB on a server. A virtual machine may report the whole cache of its
host as that of each core. Then no copy of a tensor is large enough, and each one reads what it
overwrites: with 480 MiB reported on a Xeon, one thread took 0.31 s for 2 GiB, and 0.19 s from the
same memory with the threshold below.
"""

import platform
import re
from collections.abc import Mapping
from pathlib import Path

TUNABLES = "GLIBC_TUNABLES"
_CPU0_LAST_CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index3")
# As much as the largest share that a core of a real server has, and less than a large tensor.
_THRESHOLD_BYTES = 8 * 1024 * 1024
# Beyond this a share is no core's. Below it glibc knows better than a constant.
_SHARE_BYTES_MAX = 32 * 1024 * 1024
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def memcpy_variables(
    environ: Mapping[str, str],
    machine: str = platform.machine(),
    cache: Path = _CPU0_LAST_CACHE,
) -> dict[str, str]:
    """Return what to add to a rank's environment: nothing where glibc is right, or was told."""
    if TUNABLES in environ or machine != "x86_64":
        return {}
    try:
        size = (cache / "size").read_text()
        sharers = (cache / "shared_cpu_list").read_text()
        share = cache_share_bytes(size, sharers)
    except (OSError, ValueError):
        return {}
    return tunables(share)


def cache_share_bytes(size: str, sharers: str) -> int:
    """Return a core's share of a cache, of sysfs's "size" and "shared_cpu_list". Pure.

    Raises ValueError for what is neither.
    """
    found = re.fullmatch(r"(\d+)([KMG]?)", size.strip())
    if found is None:
        raise ValueError(f"not a cache size: {size!r}")
    return int(found[1]) * _UNITS[found[2]] // _count(sharers)


def tunables(share_bytes: int) -> dict[str, str]:
    """Return the variables for cores with such a share of the last cache. Pure."""
    if share_bytes <= _SHARE_BYTES_MAX:
        return {}
    return {TUNABLES: f"glibc.cpu.x86_non_temporal_threshold={_THRESHOLD_BYTES:#x}"}


def _count(cpu_list: str) -> int:
    """Return how many processors a list such as "0-3,8" names."""
    count = 0
    for part in cpu_list.strip().split(","):
        first, _, last = part.partition("-")
        count += int(last or first) - int(first) + 1
    return max(1, count)
