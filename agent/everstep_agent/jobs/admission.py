"""Whether a job's snapshots will fit on this node, asked when its launcher joins."""

from everstep_agent.jobs.desk import Desk
from everstep_agent.jobs.facts import goes_on
from everstep_agent.jobs.job import NodeJob
from everstep_agent.vault.forecast import Forecast
from everstep_common.trainer_messages import Join


async def memory_refusal(desk: Desk, known: NodeJob | None, join: Join, uid: int) -> str | None:
    """Return why the snapshots would not fit, and what would; None where that is not known.

    Asked before anything runs: a job that has begun here has its memory, or gets on without. What
    is kept of the job that a new one goes on from must not be freed to make room for that one.
    """
    begun = known is not None and (not known.over or goes_on(known.facts, join, uid))
    if join.snapshot_bytes <= 0 or join.running_generation or begun:
        return None
    forecast = Forecast(
        processes=join.processes_per_node,
        snapshot_bytes=join.snapshot_bytes,
        slots=desk.site.slots_per_rank + int(join.storage is not None),
        replicas=join.nodes_max > 1,
    )
    return await desk.site.allocator.refusal(uid, forecast)
