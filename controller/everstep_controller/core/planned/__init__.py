"""Planned work: restarts, drains, growth, maintenance; which events and timers each takes."""

from everstep_controller.core.planned import maintenance, restarts
from everstep_controller.core.registry import Handlers, Timers, merge

HANDLERS: Handlers = merge([maintenance.HANDLERS, restarts.HANDLERS])
TIMERS: Timers = merge([maintenance.TIMERS, restarts.TIMERS])
