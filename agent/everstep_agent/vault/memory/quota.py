"""Memory quota: who holds how much snapshot memory, and how much is still promised. Pure.

A promise is made when a launcher joins, before any of its processes runs. What its job takes comes
out of it; what is left is gone for whoever joins later.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from everstep_agent.vault.memory.capacity import NO_USE, MemoryUse, size_text

# How many holders a sentence names: a node has few jobs that hold much.
_NAMED_MAX = 4


@dataclass(frozen=True, slots=True)
class Promise:
    """Memory for a job of this user: all of it, what the job has taken already included."""

    job: str
    uid: int
    size_bytes: int


class EvictableMemory(Protocol):
    """Memory of jobs that failed, kept in case somebody comes back: others need it more."""

    def evict(self, spared: Collection[str] = ()) -> bool:
        """Free some of it, but not what the spared jobs have ready; False when there is none."""
        ...

    def evictable(self, uid: int, spared: Collection[str] = ()) -> MemoryUse:
        """Return how much there is, of all users and of this one."""
        ...


class NothingEvictable:
    """A node that keeps nothing beyond its jobs."""

    def evict(self, spared: Collection[str] = ()) -> bool:
        """See EvictableMemory."""
        return False

    def evictable(self, uid: int, spared: Collection[str] = ()) -> MemoryUse:
        """See EvictableMemory."""
        return NO_USE


class Promises(Protocol):
    """Source of the promises of memory that stand."""

    def standing(self) -> Sequence[Promise]:
        """Return them; one for each job at most."""
        ...


class NothingPromised:
    """A node that has promised nothing."""

    def standing(self) -> Sequence[Promise]:
        """See Promises."""
        return ()


@dataclass(frozen=True, slots=True)
class JobShare:
    """One job's part of the snapshot memory: what it has, and what it may still take."""

    job: str
    uid: int
    held_bytes: int
    left_bytes: int = 0


class MemoryAccounting:
    """Memory that was given out, by user and by job, beside what was promised."""

    def __init__(self) -> None:
        self._held: Counter[tuple[int, str]] = Counter()

    def add(self, uid: int, job: str, size_bytes: int) -> None:
        """So much more was given out to a job; less than nothing when it gives back."""
        self._held[uid, job] += size_bytes
        if not self._held[uid, job]:
            del self._held[uid, job]

    @property
    def used_bytes(self) -> int:
        """Return how much is given out."""
        return self._held.total()

    def use_of(self, uid: int) -> MemoryUse:
        """Return what is given out, to all users and to this one."""
        own = sum(size for (owner, _), size in self._held.items() if owner == uid)
        return MemoryUse(self.used_bytes, own)

    def shares_of_others(self, job: str, promises: Sequence[Promise]) -> list[JobShare]:
        """Return the parts of all jobs but this one."""
        left = {
            (one.uid, one.job): max(0, one.size_bytes - self._held[one.uid, one.job])
            for one in promises
        }
        return [
            JobShare(name, uid, self._held[uid, name], left.get((uid, name), 0))
            for uid, name in sorted(self._held.keys() | left.keys())
            if name != job and (self._held[uid, name] or left.get((uid, name)))
        ]


def promised_use(parts: Sequence[JobShare], uid: int) -> MemoryUse:
    """Return what is still to be taken as it was promised: by all users, and by this one."""
    own = sum(part.left_bytes for part in parts if part.uid == uid)
    return MemoryUse(sum(part.left_bytes for part in parts), own)


def describe_shares(parts: Sequence[JobShare]) -> str:
    """Say what others have, largest first; nothing where nobody has any."""
    if not parts:
        return ""
    ordered = sorted(parts, key=lambda part: (-part.held_bytes - part.left_bytes, part.job))
    said = [_has(part) for part in ordered[:_NAMED_MAX]]
    if more := len(ordered) - len(said):
        said.append(f"{more} more jobs hold less")
    return f" ({'; '.join(said)})"


def _has(part: JobShare) -> str:
    name = f"job {part.job}" if part.job else "a job"
    if not part.left_bytes:
        return f"{name} holds {size_text(part.held_bytes)}"
    held = f"holds {size_text(part.held_bytes)} and " if part.held_bytes else ""
    more = " more" if part.held_bytes else ""
    return f"{name} {held}is promised {size_text(part.left_bytes)}{more}"
