"""Hangs: jobs whose ranks live and stand still; which events and timers it takes."""

from everstep_controller.core.hangs import response, stands, stillness
from everstep_controller.core.registry import Handlers, Timers, merge

HANDLERS: Handlers = merge([stillness.HANDLERS, response.HANDLERS])
TIMERS: Timers = stands.TIMERS
