"""Stillness of a generation: which nodes say that none of their ranks moves, and since when."""

from everstep_common import reports
from everstep_common.reports import RanksGoOn, RanksStandStill
from everstep_controller.core.events import Reported
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.hang import StillNode
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.registry import Handlers
from everstep_controller.core.turn import Turn


def ranks_stand_still(turn: Turn, event: Reported[RanksStandStill]) -> None:
    """No rank of a node has moved for longer than it ever does."""
    job = _job_of(turn, event, event.report.generation)
    if job is not None:
        report = event.report
        job.generation.still[event.origin.node] = StillNode(
            min(event.at_ns, turn.now_ns), report.usual_ns, report.step, report.blind
        )


def ranks_go_on(turn: Turn, event: Reported[RanksGoOn]) -> None:
    """A rank of a node has moved again."""
    job = _job_of(turn, event, event.report.generation)
    if job is not None:
        job.generation.still.pop(event.origin.node, None)


def _job_of(
    turn: Turn, event: Reported[RanksStandStill] | Reported[RanksGoOn], generation: int
) -> JobRecord | None:
    """Return the job of whose running generation a member tells; None for any other word."""
    job = turn.state.job(event.job)
    if job is None or job.state not in ACTIVE or generation != job.generation.number:
        return None
    return job if event.origin.node in job.generation.members else None


HANDLERS: Handlers = {
    reports.RanksStandStill: ranks_stand_still,
    reports.RanksGoOn: ranks_go_on,
}
