"""Moment: the time of a poll, on the clocks of whoever looked."""

from typing import Protocol


class Moment(Protocol):
    """A time on the clocks of a machine."""

    @property
    def boot_id(self) -> str:
        """Which boot the boot clock counts from."""
        ...

    @property
    def boot_ns(self) -> int:
        """Nanoseconds since that boot."""
        ...

    @property
    def wall_ns(self) -> int:
        """Wall clock, for people."""
        ...
