"""Nodes: their health, claims, checks and liveness; which events and timers each takes."""

from everstep_controller.core.nodes import (
    agent_identity,
    budgets,
    driver_pause,
    evidence,
    health,
    injections,
    isolation,
    machines,
    quorum,
    removal,
    stream_flaps,
)
from everstep_controller.core.registry import Handlers, Timers, merge

HANDLERS: Handlers = merge(
    [
        driver_pause.HANDLERS,
        evidence.HANDLERS,
        health.HANDLERS,
        injections.HANDLERS,
        isolation.HANDLERS,
        quorum.HANDLERS,
        removal.HANDLERS,
    ]
)
TIMERS: Timers = merge(
    [
        agent_identity.TIMERS,
        budgets.TIMERS,
        evidence.TIMERS,
        health.TIMERS,
        injections.TIMERS,
        isolation.TIMERS,
        machines.TIMERS,
        stream_flaps.TIMERS,
    ]
)
