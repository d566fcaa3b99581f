"""How much memory snapshots may take: what the node and the agent's cgroup still have."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


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
class _Names:
    """Files of a cgroup with limit and use, and the word in memory.stat for what can be dropped.

    Of the page cache the kernel drops what was used once before it kills: `kubectl top` and
    MemAvailable do not count it as used either.
    """

    limit: str
    used: str
    idle_cache: str


# Version 1 says no limit as a number near 2**63: room for anything.
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


@dataclass(frozen=True, slots=True)
class Limits:
    """What an operator allows, in bytes; 0 is no limit."""

    reserve_bytes: int = 0
    total_bytes: int = 0
    per_user_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Use:
    """What snapshots take already, in bytes: of all users, and of the one who asks."""

    total_bytes: int
    user_bytes: int


NOTHING = Use(0, 0)


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that are left for one user, and whose words say so."""

    size_bytes: int
    whose: str


def room(available: int, limits: Limits, use: Use) -> Room:
    """Return the least of what the node and the operator's limits leave."""
    rooms = [(available - limits.reserve_bytes, "this node can spare")]
    if limits.total_bytes:
        rooms.append((limits.total_bytes - use.total_bytes, "jobs.memory_bytes_max leaves"))
    if limits.per_user_bytes:
        rooms.append(
            (limits.per_user_bytes - use.user_bytes, "jobs.memory_per_user_bytes_max leaves")
        )
    least, whose = min(rooms)
    return Room(max(0, least), whose)


def refusal(pieces: int, piece_bytes: int, left: Room) -> str | None:
    """Return None when so many pieces fit, else a sentence with what does."""
    if pieces * piece_bytes <= left.size_bytes:
        return None
    return (
        f"{pieces} x {size_text(piece_bytes)} of snapshot memory were asked for and {left.whose} "
        f"{size_text(left.size_bytes)}: {pieces} x {size_text(left.size_bytes // pieces)} would fit"
    )


def size_text(count: int) -> str:
    """Return a size for people."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"
