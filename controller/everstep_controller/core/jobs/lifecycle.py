"""Job lifecycle as a table, and a job's way through it. A pair not in it changes nothing."""

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType

from everstep_controller.core.accounting.categories import Category, category_of
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.turn import Turn


class JobEvent(Enum):
    """What happens to a job."""

    PLANNED = auto()
    NO_CAPACITY = auto()
    STEP_CHOSEN = auto()
    ADOPTED = auto()
    ATTACHED = auto()
    RESTORED = auto()
    PROGRESSED = auto()
    STALLED = auto()
    FAULT = auto()
    OVER = auto()


_S, _E = JobState, JobEvent

_STEPPING = (_S.RUNNING, _S.STALLED)

_ACTIVE = (_S.STARTING, _S.RESTORING, _S.WARMING, *_STEPPING)

TRANSITIONS: Mapping[tuple[JobState, JobEvent], JobState] = MappingProxyType(
    {
        (_S.FORMING, _E.PLANNED): _S.REPLANNING,
        (_S.STOPPING, _E.PLANNED): _S.REPLANNING,
        (_S.REPLANNING, _E.PLANNED): _S.REPLANNING,
        (_S.WAITING_CAPACITY, _E.PLANNED): _S.REPLANNING,
        (_S.STOPPING, _E.NO_CAPACITY): _S.WAITING_CAPACITY,
        (_S.REPLANNING, _E.NO_CAPACITY): _S.WAITING_CAPACITY,
        (_S.WAITING_CAPACITY, _E.NO_CAPACITY): _S.WAITING_CAPACITY,
        (_S.REPLANNING, _E.STEP_CHOSEN): _S.STARTING,
        (_S.STOPPING, _E.ADOPTED): _S.STARTING,
        (_S.STARTING, _E.ATTACHED): _S.RESTORING,
        (_S.STARTING, _E.RESTORED): _S.WARMING,
        (_S.RESTORING, _E.RESTORED): _S.WARMING,
        (_S.STARTING, _E.PROGRESSED): _S.RUNNING,
        (_S.RESTORING, _E.PROGRESSED): _S.RUNNING,
        (_S.WARMING, _E.PROGRESSED): _S.RUNNING,
        (_S.RUNNING, _E.STALLED): _S.STALLED,
        (_S.STALLED, _E.PROGRESSED): _S.RUNNING,
    }
    | {(state, _E.FAULT): _S.STOPPING for state in _ACTIVE}
    | {(state, _E.OVER): _S.ENDED for state in JobState if state is not _S.ENDED}
)

# Processes of the generation run, or have been ordered to.
ACTIVE = frozenset(_ACTIVE)

# All its ranks have made a step.
STEPPING = frozenset(_STEPPING)


def step(state: JobState, event: JobEvent) -> JobState:
    """Return the state that the event leads to."""
    return TRANSITIONS.get((state, event), state)


def move_job(turn: Turn, job: JobRecord, event: JobEvent, reason: str) -> None:
    """Take a job through its lifecycle table."""
    before = job.state
    job.state = step(before, event)
    job.reason = reason
    if job.state is not before:
        turn.jobs_changed.add(job.name)
        job.since_ns = turn.now_ns
        turn.announce(
            job.name,
            "Job" + job.state.value.title().replace("_", ""),
            f"{job.name} is {job.state.value}: {reason}",
        )


def category(job: JobRecord, stage: Category) -> Category:
    """Return where the time of a stage of the job's start goes."""
    return category_of(stage, job.incident.cause if job.incident else None)
