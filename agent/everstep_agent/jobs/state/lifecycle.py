"""Life of a job on one node, as a table: what each event does in each state. Pure.

The table is about the newest generation that this node knows of. Words about an older one, or
about what is stopped already, are answered and change no state.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType


class JobState(Enum):
    """State of a job on this node."""

    # No generation was planned here; replicas of other nodes may be here, or a launcher waits.
    NEW = "new"
    # A generation was planned here, and nobody has asked for its end.
    RUNNING = "running"
    # Its processes are to end, by the controller's order or by the agent's own judgement.
    STOPPING = "stopping"
    # The agent ends the processes, to begin the next generation itself.
    RESTARTING = "restarting"
    # Nothing runs, and all that was committed is verified.
    STOPPED = "stopped"
    # The controller said that the job is over here.
    ENDED = "ended"


class JobEvent(Enum):
    """Event in the life of a job on this node."""

    # A newer plan: the controller's, or the agent's own after RESTARTING.
    PLANNED = "planned"
    STOP_ORDERED = "stop ordered"
    # The agent alone decides, while the controller is away.
    RESTART_DECIDED = "restart decided"
    STOP_DECIDED = "stop decided"
    # Its user ends the job through the launcher.
    USER_LEFT = "user left"
    # The launcher, or the agent in its place, has stopped all processes of the generation.
    STOP_COMPLETED = "stop completed"
    # No process is left although no stop was asked for: they finished, or went with their launcher.
    PROCESSES_GONE = "processes gone"
    END_ORDERED = "end ordered"
    # Another job goes on from what is kept of it: from now on it is that job.
    CONTINUED = "continued"
    # The controller says that a launcher is the job's, which has waited here beside it.
    LAUNCHER_GIVEN = "launcher given"


class Effect(Enum):
    """Effect of an event on a job; several are carried out in this order."""

    BEGIN_GENERATION = "begin generation"
    # Have the launcher end the processes; after its time the agent kills them.
    STOP_PROCESSES = "stop processes"
    # Begin the agent's own next generation; where that cannot be, do as for REPORT_STOPPED.
    RESTART_IN_PLACE = "restart in place"
    REPORT_STOPPED = "report stopped"
    # Bring the last step to storage, then send the launcher away and free or keep the memory.
    CONCLUDE = "conclude"


@dataclass(frozen=True, slots=True)
class Step:
    """The next state, and what is done."""

    to: JobState
    effects: tuple[Effect, ...] = ()


_S, _E = JobState, JobEvent
_BEGUN = Step(_S.RUNNING, (Effect.BEGIN_GENERATION,))
_STOPPING = Step(_S.STOPPING, (Effect.STOP_PROCESSES,))
_CONCLUDED = Step(_S.ENDED, (Effect.CONCLUDE,))
_STOPPED = Step(_S.STOPPED)

_NOT_RUNNING = (_S.NEW, _S.STOPPED, _S.ENDED)

TRANSITIONS: Mapping[tuple[JobState, JobEvent], Step] = MappingProxyType(
    {
        (_S.NEW, _E.PLANNED): _BEGUN,
        (_S.RUNNING, _E.PLANNED): _BEGUN,
        (_S.STOPPING, _E.PLANNED): _BEGUN,
        (_S.RESTARTING, _E.PLANNED): _BEGUN,
        (_S.STOPPED, _E.PLANNED): _BEGUN,
        # The controller's journal was restored from a backup that is older than the end.
        (_S.ENDED, _E.PLANNED): _BEGUN,
        # A stop may come before the plan of its generation, or without one.
        (_S.NEW, _E.STOP_ORDERED): _STOPPING,
        (_S.RUNNING, _E.STOP_ORDERED): _STOPPING,
        (_S.STOPPING, _E.STOP_ORDERED): _STOPPING,
        (_S.RESTARTING, _E.STOP_ORDERED): _STOPPING,
        (_S.STOPPED, _E.STOP_ORDERED): _STOPPING,
        (_S.ENDED, _E.STOP_ORDERED): Step(_S.ENDED, (Effect.STOP_PROCESSES,)),
        (_S.RUNNING, _E.RESTART_DECIDED): Step(_S.RESTARTING, (Effect.STOP_PROCESSES,)),
        (_S.RUNNING, _E.STOP_DECIDED): _STOPPING,
        # Its processes were told to end already; what follows is not the agent's to decide.
        (_S.RESTARTING, _E.USER_LEFT): _STOPPING,
        (_S.NEW, _E.STOP_COMPLETED): Step(_S.NEW, (Effect.REPORT_STOPPED,)),
        (_S.RUNNING, _E.STOP_COMPLETED): Step(_S.STOPPED, (Effect.REPORT_STOPPED,)),
        (_S.STOPPING, _E.STOP_COMPLETED): Step(_S.STOPPED, (Effect.REPORT_STOPPED,)),
        (_S.RESTARTING, _E.STOP_COMPLETED): Step(_S.STOPPED, (Effect.RESTART_IN_PLACE,)),
        (_S.STOPPED, _E.STOP_COMPLETED): Step(_S.STOPPED, (Effect.REPORT_STOPPED,)),
        (_S.ENDED, _E.STOP_COMPLETED): Step(_S.ENDED, (Effect.REPORT_STOPPED,)),
        (_S.RUNNING, _E.PROCESSES_GONE): _STOPPED,
        (_S.STOPPING, _E.PROCESSES_GONE): _STOPPED,
        (_S.RESTARTING, _E.PROCESSES_GONE): _STOPPED,
        **{(state, _E.END_ORDERED): _CONCLUDED for state in _S},
        (_S.ENDED, _E.CONTINUED): Step(_S.NEW),
        # The journal of the controller is older than the end.
        (_S.ENDED, _E.LAUNCHER_GIVEN): _STOPPED,
    }
)

# Pairs that change nothing, on purpose, and why.
IGNORED: Mapping[tuple[JobState, JobEvent], str] = MappingProxyType(
    {
        **{
            (state, event): "only a job that runs fails while the controller is away"
            for event in (_E.RESTART_DECIDED, _E.STOP_DECIDED)
            for state in _S
            if state is not _S.RUNNING
        },
        **{
            (state, _E.USER_LEFT): "the controller decides what follows"
            for state in _S
            if state is not _S.RESTARTING
        },
        **{(state, _E.PROCESSES_GONE): "none was there" for state in _NOT_RUNNING},
        **{
            (state, _E.CONTINUED): "it has not ended: the controller calls the same job otherwise"
            for state in _S
            if state is not _S.ENDED
        },
        **{
            (state, _E.LAUNCHER_GIVEN): "it has not ended: how far it is does not change"
            for state in _S
            if state is not _S.ENDED
        },
    }
)


def step(state: JobState, event: JobEvent) -> Step:
    """Return what an event does; an ignored pair changes nothing."""
    return TRANSITIONS.get((state, event), Step(state))
