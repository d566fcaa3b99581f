"""Jobs: admission, identity, progress and end; which events and timers each takes."""

from everstep_controller.core.jobs import (
    absence,
    admission,
    ending,
    identity,
    incidents,
    lost_jobs,
    membership,
    progress,
    withdrawal,
)
from everstep_controller.core.registry import Handlers, Timers, merge

HANDLERS: Handlers = merge(
    [
        admission.HANDLERS,
        ending.HANDLERS,
        incidents.HANDLERS,
        membership.HANDLERS,
        progress.HANDLERS,
    ]
)
TIMERS: Timers = merge(
    [
        absence.TIMERS,
        ending.TIMERS,
        identity.TIMERS,
        lost_jobs.TIMERS,
        progress.TIMERS,
        withdrawal.TIMERS,
    ]
)
