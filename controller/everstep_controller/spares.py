"""Which nodes wait as spares of a job, what each has ready, and which keeps replicas. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.state import State
from everstep_controller.core.vault.copies import Copy

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


def keeper_of(record: JobRecord, state: State, before: str, holders: Collection[str]) -> str:
    """Return the spare that keeps the replicas of a job on one node; empty when there is none.

    It stays who it was; a new one is best in another failure domain, and has some of it already.
    """
    if len(record.members) != 1:
        return ""
    member, nodes = record.members[0], state.nodes
    able = [
        name
        for name in spares_of(record)
        if nodes[name].connected and nodes[name].bulk_address and not nodes[name].gone
    ]
    if before in able or not able:
        return before if before in able else ""
    home = nodes[member].domain if member in nodes else ""

    def worse(name: str) -> tuple[bool, bool, bool, str]:
        node = nodes[name]
        return bool(node.spare_check.failed), node.domain == home, name not in holders, name

    return min(able, key=worse)


def copy_bytes_max(copies: Iterable[Copy]) -> int:
    """Return the size that no copy exceeds, and a little more; 0 without any."""
    largest = max((copy.size_bytes for copy in copies), default=0)
    return -(-largest // _UNIT_BYTES) * _UNIT_BYTES
