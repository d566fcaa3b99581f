"""Slow steps of a job: what their excess is put down to when the judges' verdict changes."""

from everstep_controller.core.accounting.slow_time import slow_time
from everstep_controller.core.events import SlowJudged
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.turn import Turn


def put_down_slow_time(turn: Turn, job: JobRecord, event: SlowJudged) -> None:
    """Have the ledger know what makes steps long: from when a part became slow, or of all the run.

    What was put down to something before stays so.
    """
    found = slow_time((part.factor for part in event.parts), event.causes)
    began = (part.began_ns or turn.now_ns for part in event.parts)
    job.ledger.attribute(found, min(began, default=0 if event.causes else turn.now_ns))
