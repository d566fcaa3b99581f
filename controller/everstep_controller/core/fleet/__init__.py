"""Fleet: what concerns all nodes together; which events and timers it takes."""

from everstep_controller.core.fleet import rejected_records

HANDLERS = rejected_records.HANDLERS
TIMERS = rejected_records.TIMERS
