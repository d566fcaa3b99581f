"""Waiting for a free slot, for as long as one can still become free."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.snapshots.holdings import RankMemory
from everstep_agent.vault.snapshots.slots import Grant

# While the controller is away a job on one node frees its older steps itself, in the next turns of
# the loop (jobs/alone.py); one that is not given a slot by then is given none.
_LAST_CHANCE_S = 0.05


@dataclass(frozen=True, slots=True)
class Wait:
    """How long to wait; ``in_vain``: the controller, whose word frees slots, is away."""

    for_s: float
    in_vain: Callable[[], bool]


async def slot_for(vault: JobVault, memory: RankMemory, step: int, wait: Wait) -> Grant | str:
    """Give out a slot, waiting for one; a sentence when there was none in time."""
    if memory.table.holds(step):
        return f"step {step} is in the vault already"
    try:
        async with asyncio.timeout(wait.for_s) as limit:
            while not memory.retired:
                grant = memory.table.begin(step, vault.recoverable)
                if grant is not None:
                    vault.begun(memory, grant)
                    return grant
                # With all slots full nothing changes any more. Who frees them while the controller
                # is away may not have known yet that it is when the last one was.
                vault.slots_are_full()
                if wait.in_vain():
                    _shorten(limit)
                await vault.bell.wait()
    except TimeoutError:
        vault.site.counts.skipped += 1
        why = "while the controller is away" if wait.in_vain() else f"within {wait.for_s:g} s"
        return f"no slot was free {why}: {memory.table.occupancy(vault.recoverable)}"
    return f"generation {memory.table.generation} was stopped"


def _shorten(limit: asyncio.Timeout) -> None:
    soon = asyncio.get_running_loop().time() + _LAST_CHANCE_S
    ends = limit.when()
    limit.reschedule(soon if ends is None else min(ends, soon))
