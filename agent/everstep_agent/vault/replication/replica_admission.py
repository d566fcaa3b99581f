"""Replica admission: whether a node has memory for the replicas of several members beside its own.

Where most members are in one failure domain, those outside it keep several ones' replicas. What a
job was promised counts one member's: the others' are taken only while the slots of the next
generation still fit beside them. Where they do not, the controller hears of it, and has the node
keep one member's again.
"""

import logging

from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.memory.allocator import AllocationRequest
from everstep_agent.vault.snapshots.copies import CopyKey, CopyRef
from everstep_agent.vault.snapshots.holdings import RankMemory

logger = logging.getLogger(__name__)


async def admission_refusal(vault: JobVault, expected: CopyRef) -> str | None:
    """Return why a replica is not taken, or None: it is the one member's, or there is room.

    Refused only until the controller knows: whose replicas stay here is its word, and may be those
    that were refused. What is held of the others is freed when these have come.
    """
    if vault.replicas_short or not exceeds_one_member(vault, expected.key):
        return None
    slots = sum(region.size_bytes for memory in _slots(vault) for region in memory.live_regions())
    wanted = slots + expected.size_bytes
    request = AllocationRequest(vault.uid, 1, wanted, "", vault.job, after_promises=True)
    if await vault.context.allocator.fits(request):
        return None
    report_shortage(vault)
    return f"{vault.context.node} has no memory for the replicas of more than one node"


def exceeds_one_member(vault: JobVault, key: CopyKey) -> bool:
    """Return whether, with this one, there are replicas of more ranks than one member has.

    All members have as many as this one; who has none (a spare) keeps those of one member only.
    """
    own = {memory.table.rank for memory in _slots(vault)}
    ranks = {one.rank for one in vault.holdings.replicas if one.generation == key.generation}
    return bool(own) and len((ranks | {key.rank}) - own) > len(own)


def report_shortage(vault: JobVault) -> None:
    """Let the controller know, once for all generations of the job."""
    if not vault.replicas_short:
        logger.warning("job %s: memory for the replicas of one node only", vault.job)
        vault.replicas_short = True
        vault.notify_change()


def _slots(vault: JobVault) -> list[RankMemory]:
    return [memory for memory in vault.holdings.ranks if not memory.retired]
