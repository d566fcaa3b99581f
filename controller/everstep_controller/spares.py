"""Which nodes wait as spares of a job, and what memory each is to have ready. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from everstep_controller.core.copies import Copy
from everstep_controller.core.job_lifecycle import ACTIVE
from everstep_controller.core.state import JobRecord

# The size of a state changes a little from step to step; spares hear of the first one only.
_UNIT_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SpareMemory:
    """Memory for what the ranks of a lost member would fetch, and for their slots."""

    copy_bytes: int
    processes: int


def spares_of(record: JobRecord) -> frozenset[str]:
    """Return the nodes whose launchers wait while the job runs."""
    if record.state not in ACTIVE:
        return frozenset()
    return frozenset(record.launchers).difference(record.members)


def copy_bytes_max(copies: Iterable[Copy]) -> int:
    """Return the size that no copy exceeds, and a little more; 0 without any."""
    largest = max((copy.size_bytes for copy in copies), default=0)
    return -(-largest // _UNIT_BYTES) * _UNIT_BYTES
