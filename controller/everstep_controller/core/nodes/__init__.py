"""Nodes: their health, claims, checks and liveness; which events and timers each takes."""

from everstep_common import reports
from everstep_controller.core import events
from everstep_controller.core.nodes import health, injections, isolation, liveness
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import TimerKind

HANDLERS: Handlers = {
    events.NodeDisconnected: liveness.node_disconnected,
    events.PeerReported: liveness.peer_reported,
    events.PeerJudged: liveness.peer_judged,
    reports.FindingRaised: health.finding_raised,
    reports.FindingCleared: health.finding_cleared,
    events.VerdictChanged: health.verdict_changed,
    events.DriverReported: isolation.record_report,
    events.OperatorIsolated: health.operator_isolated,
    events.OperatorReleased: health.operator_released,
    events.OperatorDrained: health.operator_drained,
    events.InjectionOrdered: injections.injection_ordered,
    events.InjectionCleared: injections.injection_cleared,
    reports.InjectionChanged: injections.injection_changed,
}
TIMERS: Timers = {
    TimerKind.STREAM: liveness.silence_due,
    TimerKind.CONFIRM: liveness.silence_due,
    TimerKind.CHECK: health.check_again,
    TimerKind.PROBATION: health.probation_over,
    TimerKind.INJECTION: injections.forget_injection,
    TimerKind.ISOLATION: isolation.retry_driver,
}
