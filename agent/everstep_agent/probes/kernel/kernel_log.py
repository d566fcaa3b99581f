"""Kernel log interface: a batch of new messages, and the position up to which a log was read."""

from dataclasses import dataclass
from typing import Protocol

from everstep_agent.detectors.kernel import KernelLine


@dataclass(frozen=True, slots=True)
class Position:
    """Position in a log: sequence in the kernel's buffer, or inode and offset in a file."""

    source: str = ""
    place: int = -1


@dataclass(frozen=True, slots=True)
class KernelBatch:
    """The lines since the last read, and how many were overwritten before they could be read.

    ``earlier`` are still in the kernel's buffer, but an agent before this one has judged them.
    ``absent`` says why there is no log: a fact, no error. ``more``: there is more to read already.
    """

    lines: tuple[KernelLine, ...] = ()
    lost: int = 0
    earlier: tuple[KernelLine, ...] = ()
    absent: str = ""
    more: bool = False


class KernelLog(Protocol):
    """Whatever hands over the kernel messages that came since the last call."""

    @property
    def position(self) -> Position:
        """Return how far was read, to go on from there after a restart."""
        ...

    def drain(self) -> KernelBatch:
        """Return the new messages, oldest first. Raises OSError, and ValueError for nonsense."""
        ...

    def descriptor(self) -> int | None:
        """Return what becomes readable when there is news; None where nothing can tell."""
        ...

    def has_news(self) -> bool:
        """Return whether that the descriptor became readable is about this log."""
        ...
