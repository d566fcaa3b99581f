"""Planned work: restarts, drains, growth, maintenance, users' ends; what each of them takes."""

from everstep_controller.core.planned import maintenance, restarts, swaps, user_end
from everstep_controller.core.registry import Handlers, Timers, merge

HANDLERS: Handlers = merge(
    [maintenance.HANDLERS, restarts.HANDLERS, swaps.HANDLERS, user_end.HANDLERS]
)
TIMERS: Timers = merge([maintenance.TIMERS, restarts.TIMERS, user_end.TIMERS])
