"""Which jobs' planned work an event may change, so that nobody has to look at all of them."""

from everstep_controller.core.events import (
    AutomationPaused,
    AutomationResumed,
    ControllerStarted,
    Event,
    EventRejected,
    RecoveryBegun,
    SettingsApplied,
    TimerDue,
)
from everstep_controller.core.state import JobRecord
from everstep_controller.core.turn import Turn

# Rare, and nobody can say which jobs it concerns.
_ABOUT_ALL = (
    AutomationPaused,
    AutomationResumed,
    ControllerStarted,
    EventRejected,
    RecoveryBegun,
    SettingsApplied,
)


def jobs_concerned(turn: Turn, event: Event) -> list[JobRecord]:
    """Return the jobs for which something may have changed: all, only where nobody can say which.

    It depends on the job's own state, the nodes that its launchers offer, the settings, and what is
    paused; the time comes as a timer of the job's.
    """
    known = turn.state.jobs
    timer = event.timer if isinstance(event, TimerDue) else ""
    if isinstance(event, _ABOUT_ALL) or timer == "recovery":
        return list(known.values())
    names = {*turn.jobs_changed, getattr(event, "job", ""), timer.partition("/")[2]}
    if changed := turn.nodes_changed:
        names.update(job.name for job in known.values() if not changed.isdisjoint(job.launchers))
    return [known[name] for name in sorted(names) if name in known]
