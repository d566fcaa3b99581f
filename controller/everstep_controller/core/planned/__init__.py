"""Planned work: restarts, drains, growth, maintenance; which events and timers each takes."""

from everstep_controller.core import events
from everstep_controller.core.planned import maintenance, restarts
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import TimerKind

HANDLERS: Handlers = {
    events.RestartOrdered: restarts.restart_ordered,
    events.RestartCancelled: restarts.restart_cancelled,
    events.MaintenanceOrdered: maintenance.maintenance_ordered,
    events.MaintenanceCancelled: maintenance.maintenance_cancelled,
}
TIMERS: Timers = {
    TimerKind.PLANNED: restarts.boundary_overdue,
    TimerKind.STILL: restarts.look_again,
    TimerKind.GROWTH: restarts.look_again,
    TimerKind.MAINTENANCE: maintenance.window_due,
}
