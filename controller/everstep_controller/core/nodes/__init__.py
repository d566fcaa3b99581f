"""Nodes: their health, claims, checks and liveness; which events and timers each takes."""

from everstep_controller.core.nodes import (
    agent_identity,
    budgets,
    checks,
    driver_pause,
    evidence,
    findings,
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
        findings.HANDLERS,
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
        checks.TIMERS,
        evidence.TIMERS,
        findings.TIMERS,
        health.TIMERS,
        injections.TIMERS,
        isolation.TIMERS,
        machines.TIMERS,
        stream_flaps.TIMERS,
    ]
)
