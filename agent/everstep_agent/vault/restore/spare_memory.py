"""Spare memory: what a waiting spare allocates ahead, for a copy and the slots of each rank.

New memory takes longer to come than the bytes that a peer sends into it. It is made of what nobody
else needs, counted like all snapshot memory, and the first that goes when somebody does.
"""

import logging

from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.memory.allocator import MemoryShortError
from everstep_agent.vault.restore.restorer import Restorer
from everstep_agent.vault.slot_preallocation import slot_bytes_for
from everstep_proto.generated import fleet_pb2

logger = logging.getLogger(__name__)

# A node has no more accelerators; a number beyond it is not believed.
_PROCESSES_MAX = 64


def prepare_spare(vault: JobVault, restorer: Restorer, wanted: fleet_pb2.SpareMemory) -> None:
    """Begin to make it, and to fill it for a silent member; left off when the node gets its place.

    What has come of a copy by then stays for a while, and the restore goes on from there.
    """
    vault.tasks.start_ahead(_wait(vault, restorer, wanted), vault.fence)


async def _wait(vault: JobVault, restorer: Restorer, wanted: fleet_pb2.SpareMemory) -> None:
    if wanted.ahead:
        await restorer.prefetch_for_spare(wanted)
    await _make(vault, wanted)


async def _make(vault: JobVault, wanted: fleet_pb2.SpareMemory) -> None:
    ranks = min(wanted.processes, _PROCESSES_MAX)
    try:
        # The copies first: the slots can be made while the processes start.
        if not wanted.ahead:
            await vault.receive_buffers.prepare_spares(ranks, wanted.copy_bytes)
        await vault.preallocated_slots.prepare_spare(
            vault.slot_request(slot_bytes_for(wanted.copy_bytes)), ranks
        )
    except (OSError, MemoryShortError) as error:
        logger.info("memory of a spare of job %s: %s", vault.job, error)
