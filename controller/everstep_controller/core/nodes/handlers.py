"""Event and timer handlers of nodes, for the registry."""

from everstep_common import reports
from everstep_controller.core import events
from everstep_controller.core.nodes import (
    checks,
    findings,
    health,
    injections,
    isolation,
    liveness,
    operators,
)
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import TimerKind

HANDLERS: Handlers = {
    events.NodeDisconnected: liveness.node_disconnected,
    events.PeerReported: liveness.peer_reported,
    events.PeerJudged: liveness.peer_judged,
    reports.FindingRaised: findings.finding_raised,
    reports.FindingCleared: findings.finding_cleared,
    events.VerdictChanged: findings.verdict_changed,
    events.DriverReported: isolation.record_report,
    events.OperatorIsolated: operators.operator_isolated,
    events.OperatorReleased: operators.operator_released,
    events.OperatorDrained: operators.operator_drained,
    events.InjectionOrdered: injections.injection_ordered,
    events.InjectionCleared: injections.injection_cleared,
    reports.InjectionChanged: injections.injection_changed,
}
TIMERS: Timers = {
    TimerKind.STREAM: liveness.stream_silent,
    TimerKind.CONFIRM: liveness.confirmation_over,
    TimerKind.CHECK: checks.check_again,
    TimerKind.PROBATION: health.probation_over,
    TimerKind.INJECTION: injections.forget_injection,
    TimerKind.ISOLATION: isolation.retry_driver,
}
