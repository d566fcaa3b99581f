"""Memory gauges: what is free on the node, in the agent's cgroups and among its huge pages."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from everstep_agent.vault.memory.pages import HUGE_PAGE_BYTES


class MemoryGauge(Protocol):
    """Whatever knows how much memory could be allocated now."""

    def available_bytes(self) -> int:
        """Return the bytes that could be allocated without anybody being killed. Raises OSError."""
        ...


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """MemAvailable of the kernel, or less where a cgroup above the agent has a limit."""

    proc: Path = Path("/proc")
    cgroups: Path = Path("/sys/fs/cgroup")

    def available_bytes(self) -> int:
        """See MemoryGauge."""
        rooms = [self._meminfo("MemAvailable")]
        for line in (self.proc / "self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                rooms += _rooms(self.cgroups, path, _VERSION_2)
            elif "memory" in controllers.split(","):
                rooms += _rooms(self.cgroups / "memory", path, _VERSION_1)
        return min(rooms)

    def _meminfo(self, key: str) -> int:
        for line in (self.proc / "meminfo").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            if name == key:
                return int(rest.split()[0]) * 1024
        raise OSError(f"{self.proc}/meminfo has no {key}")


@dataclass(frozen=True, slots=True)
class HugePagePool:
    """Explicit huge pages that nobody has reserved: no part of MemAvailable, or of a cgroup's."""

    folder: Path = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")

    def available_bytes(self) -> int:
        """See MemoryGauge; a kernel without such pages has none."""
        try:
            free, reserved = (
                int((self.folder / name).read_text(encoding="ascii"))
                for name in ("free_hugepages", "resv_hugepages")
            )
        except (OSError, ValueError):
            return 0
        return max(0, free - reserved) * HUGE_PAGE_BYTES


@dataclass(frozen=True, slots=True)
class _Names:
    """Files of a cgroup with limit and use, and the word in memory.stat for what can be dropped.

    Of the page cache the kernel drops what was used once before it kills: `kubectl top` and
    MemAvailable do not count it as used either.
    """

    limit: str
    used: str
    idle_cache: str


# Files of cgroups in version 2 and 1. Version 1 shows "no limit" as a number near 2**63.
_VERSION_2 = _Names("memory.max", "memory.current", "inactive_file")
_VERSION_1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _rooms(root: Path, path: str, files: _Names) -> Iterator[int]:
    """Yield what each limited cgroup from the agent's own up to the root leaves."""
    own = root / path.lstrip("/")
    # In a container the path may be that of the host, and the root is the container's own cgroup.
    folder = own if own.is_dir() and ".." not in own.parts else root
    while True:
        room = _room(folder, files)
        if room is not None:
            yield room
        if folder == root:
            return
        folder = folder.parent


def _room(folder: Path, files: _Names) -> int | None:
    try:
        limit = (folder / files.limit).read_text(encoding="ascii").strip()
        if limit == "max":
            return None
        used = int((folder / files.used).read_text(encoding="ascii"))
        return max(0, int(limit) - max(0, used - _idle_cache(folder, files)))
    except (OSError, ValueError):
        return None


def _idle_cache(folder: Path, files: _Names) -> int:
    try:
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(f"{files.idle_cache} "))
