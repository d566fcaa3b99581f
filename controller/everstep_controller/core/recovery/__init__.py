"""Recovery: blame, plans and starts of generations; which events and timers each takes."""

from everstep_controller.core.recovery import (
    backoff,
    blame,
    deadlines,
    pair_tests,
    planning,
    spares,
    start,
)
from everstep_controller.core.registry import Handlers, Timers, merge

HANDLERS: Handlers = merge([spares.HANDLERS, start.HANDLERS, blame.HANDLERS, pair_tests.HANDLERS])
TIMERS: Timers = merge(
    [backoff.TIMERS, deadlines.TIMERS, pair_tests.TIMERS, planning.TIMERS, spares.TIMERS]
)
