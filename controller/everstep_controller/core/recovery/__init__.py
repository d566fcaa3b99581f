"""Recovery: blame, plans and starts of generations; which events and timers each takes."""

from everstep_controller.core.recovery import deadlines, planning, spares, start, timeouts
from everstep_controller.core.registry import Handlers, Timers, merge

HANDLERS: Handlers = merge([spares.HANDLERS, start.HANDLERS, timeouts.HANDLERS])
TIMERS: Timers = merge([deadlines.TIMERS, planning.TIMERS, spares.TIMERS])
