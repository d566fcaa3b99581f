"""Hangs: jobs whose ranks live and stand still; which events and timers it takes."""

from everstep_controller.core.hangs import stillness
from everstep_controller.core.registry import Handlers, Timers

HANDLERS: Handlers = stillness.HANDLERS
TIMERS: Timers = {}
