"""Whether a job's snapshots will fit on this node, asked when its launcher joins."""

from everstep_agent.jobs.desk import Desk
from everstep_agent.jobs.facts import goes_on
from everstep_agent.jobs.job import NodeJob
from everstep_agent.vault.memory.allocator import Requester
from everstep_agent.vault.memory.capacity import MemoryForecast
from everstep_common.trainer_messages import Join


def begun(known: NodeJob | None, join: Join, uid: int) -> bool:
    """Return whether a launcher's job has its memory here already, or gets on without.

    What is kept of the job that a new one goes on from must not be freed to make room for that one.
    """
    if join.running_generation:
        return True
    return known is not None and (not known.over or goes_on(known.facts, join, uid))


def forecast_of(desk: Desk, join: Join) -> MemoryForecast | None:
    """Return what a job will need on this node, if it said how large its state is."""
    if join.snapshot_bytes <= 0:
        return None
    return MemoryForecast(
        processes=join.processes_per_node,
        snapshot_bytes=join.snapshot_bytes,
        slots=desk.site.slots_per_rank + int(join.storage is not None),
        replicas=join.nodes_max > 1,
    )


async def memory_refusal(desk: Desk, known: NodeJob | None, join: Join, uid: int) -> str | None:
    """Return why the snapshots would not fit beside what others were promised, and what would.

    A launcher that comes back has that word already.
    """
    forecast = forecast_of(desk, join)
    if forecast is None or (known is not None and known.facts.promised == forecast):
        return None
    asker = Requester(uid, join.job, after_promises=True)
    return await desk.site.allocator.forecast_refusal(asker, forecast)
