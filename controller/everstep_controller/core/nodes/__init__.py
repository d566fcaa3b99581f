"""Nodes: their health, claims, checks and liveness; which events and timers each takes."""

from everstep_controller.core.nodes import agent_identity, health, injections, isolation, liveness
from everstep_controller.core.registry import Handlers, Timers, merge

HANDLERS: Handlers = merge(
    [health.HANDLERS, injections.HANDLERS, isolation.HANDLERS, liveness.HANDLERS]
)
TIMERS: Timers = merge(
    [
        agent_identity.TIMERS,
        health.TIMERS,
        injections.TIMERS,
        isolation.TIMERS,
        liveness.TIMERS,
    ]
)
