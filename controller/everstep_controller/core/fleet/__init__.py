"""Fleet: what concerns all nodes together; which events and timers it takes."""

from everstep_controller.core.fleet import enrolment, rejected_records
from everstep_controller.core.registry import Handlers, merge

HANDLERS: Handlers = merge([enrolment.HANDLERS, rejected_records.HANDLERS])
TIMERS = rejected_records.TIMERS
