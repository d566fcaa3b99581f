"""A finding that is open: what it is, since when, and when it was seen last."""

from dataclasses import dataclass
from typing import Protocol

from everstep_common.judging.findings import Finding


class Moment(Protocol):
    """A time on the node's clocks."""

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


@dataclass(frozen=True, slots=True)
class OpenFinding:
    """A finding, when it began, and when it was seen last (None: when it began)."""

    finding: Finding
    since: Moment
    last: Moment | None = None
