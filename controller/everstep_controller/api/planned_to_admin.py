"""Planned work on a job as the command line shows it."""

from everstep_controller.core import outlook
from everstep_controller.core.state import JobRecord, State
from everstep_proto.generated import admin_pb2


def planned_line(state: State, job: JobRecord) -> admin_pb2.PlannedLine | None:
    """Return what is still to come of planned work on a job; None for nothing."""
    wish = outlook.pending(state, job)
    if wish is None:
        return None
    return admin_pb2.PlannedLine(
        kind=wish.kind,
        by=wish.by,
        reason=wish.reason,
        ordered_ns=wish.ordered_ns,
        after_step=wish.after_step,
        waits=outlook.waits_for(state, job, wish),
        undo=outlook.undo(state, job, wish),
    )
