"""Recovery: blame, plans and starts of generations; which events and timers each takes."""

from everstep_common import reports
from everstep_controller.core import events
from everstep_controller.core.recovery import planning, spares, start
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import TimerKind

HANDLERS: Handlers = {
    reports.CheckFinished: spares.check_finished,
    reports.RestartedHere: start.restarted_here,
    events.RecoveryStepChosen: start.step_chosen,
}
TIMERS: Timers = {
    TimerKind.SPARE: spares.spare_check_due,
    TimerKind.FORMING: planning.wait_over,
    TimerKind.RETRY: planning.retry_due,
}
