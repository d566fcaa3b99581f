"""Fleet: what concerns all nodes together; which events and timers it takes."""

from everstep_controller.core import events
from everstep_controller.core.fleet import rejected_records
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import TimerKind

HANDLERS: Handlers = {
    events.RecordRejected: rejected_records.record_rejected,
}
TIMERS: Timers = {
    TimerKind.REJECTED: rejected_records.quiet,
}
