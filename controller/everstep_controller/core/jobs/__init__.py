"""Jobs: admission, identity, progress and end; which events and timers each takes."""

from everstep_common import reports
from everstep_controller.core import events
from everstep_controller.core.jobs import (
    admission,
    ending,
    identity,
    incidents,
    membership,
    progress,
)
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import TimerKind

HANDLERS: Handlers = {
    events.NodeConnected: membership.node_connected,
    reports.LauncherJoined: admission.launcher_joined,
    reports.LauncherLeft: membership.launcher_left,
    reports.PhaseReached: progress.phase_reached,
    reports.RankExited: membership.rank_exited,
    reports.RollbackAsked: incidents.rollback_asked,
    reports.GenerationStopped: membership.generation_stopped,
    reports.GenerationFinished: progress.generation_finished,
    events.JobProgressed: progress.progressed,
    events.StepRecoverable: progress.step_recoverable,
    events.KeeperChosen: progress.keeper_chosen,
    events.CadenceChosen: progress.cadence_chosen,
    events.LayoutLearned: progress.layout_learned,
    events.BreakpointReached: ending.breakpoint_reached,
    events.OperatorForgotJob: ending.job_forgotten,
}
TIMERS: Timers = {
    TimerKind.STALLED: progress.stall_due,
    TimerKind.BREAKPOINT: ending.breakpoint_overdue,
    TimerKind.ABANDONED: ending.end_abandoned,
    TimerKind.NEXT: identity.end_overdue,
    TimerKind.FORGET: ending.retention_over,
}
