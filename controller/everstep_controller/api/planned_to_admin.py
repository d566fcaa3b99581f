"""Planned work on a job as a message of the admin API."""

from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.state import State
from everstep_controller.core.planned import forecast
from everstep_proto.generated import admin_pb2


def planned_line(state: State, job: JobRecord) -> admin_pb2.PlannedLine | None:
    """Return what is still to come of planned work on a job; None for nothing."""
    wish = forecast.pending(state, job)
    if wish is None:
        return None
    return admin_pb2.PlannedLine(
        kind=wish.kind,
        by=wish.by,
        reason=wish.reason,
        ordered_ns=wish.ordered_ns,
        after_step=wish.after_step,
        waits=forecast.waits_for(state, job, wish),
        undo=forecast.undo(state, job, wish),
    )
