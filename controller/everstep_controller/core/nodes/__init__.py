"""Nodes: their health, claims, checks and liveness; which events and timers each takes."""

from everstep_controller.core.nodes import (
    agent_identity,
    budgets,
    health,
    injections,
    isolation,
    liveness,
    removal,
)
from everstep_controller.core.registry import Handlers, Timers, merge

HANDLERS: Handlers = merge(
    [
        health.HANDLERS,
        injections.HANDLERS,
        isolation.HANDLERS,
        liveness.HANDLERS,
        removal.HANDLERS,
    ]
)
TIMERS: Timers = merge(
    [
        agent_identity.TIMERS,
        budgets.TIMERS,
        health.TIMERS,
        injections.TIMERS,
        isolation.TIMERS,
        liveness.TIMERS,
    ]
)
