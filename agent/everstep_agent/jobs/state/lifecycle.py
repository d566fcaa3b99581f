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
    # It has ended, and the launcher of the next job of its name has joined.
    SUPERSEDED = "superseded"


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
    NEXT_JOB_JOINED = "next job joined"
    # The launcher has exited as it was told to.
    LAUNCHER_DISMISSED = "launcher dismissed"
    # The facts of the previous job of this name were discarded for the next one.
    PREVIOUS_FORGOTTEN = "previous forgotten"


class Effect(Enum):
    """Effect of an event on a job; several are carried out in this order."""

    # Free the snapshots of the previous job of this name, unless the new plan restores from them.
    FREE_OLD_SNAPSHOTS = "free old snapshots"
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
_BEGUN_ANEW = Step(_S.RUNNING, (Effect.FREE_OLD_SNAPSHOTS, Effect.BEGIN_GENERATION))
_STOPPING = Step(_S.STOPPING, (Effect.STOP_PROCESSES,))
_CONCLUDED = Step(_S.ENDED, (Effect.CONCLUDE,))
_ENDED = Step(_S.ENDED)
_STOPPED = Step(_S.STOPPED)
_NEW = Step(_S.NEW)

_NOT_RUNNING = (_S.NEW, _S.STOPPED, _S.ENDED, _S.SUPERSEDED)

TRANSITIONS: Mapping[tuple[JobState, JobEvent], Step] = MappingProxyType(
    {
        (_S.NEW, _E.PLANNED): _BEGUN,
        (_S.RUNNING, _E.PLANNED): _BEGUN,
        (_S.STOPPING, _E.PLANNED): _BEGUN,
        (_S.RESTARTING, _E.PLANNED): _BEGUN,
        (_S.STOPPED, _E.PLANNED): _BEGUN,
        (_S.ENDED, _E.PLANNED): _BEGUN,
        (_S.SUPERSEDED, _E.PLANNED): _BEGUN_ANEW,
        # A stop may come before the plan of its generation, or without one.
        (_S.NEW, _E.STOP_ORDERED): _STOPPING,
        (_S.RUNNING, _E.STOP_ORDERED): _STOPPING,
        (_S.STOPPING, _E.STOP_ORDERED): _STOPPING,
        (_S.RESTARTING, _E.STOP_ORDERED): _STOPPING,
        (_S.STOPPED, _E.STOP_ORDERED): _STOPPING,
        (_S.ENDED, _E.STOP_ORDERED): Step(_S.ENDED, (Effect.STOP_PROCESSES,)),
        (_S.SUPERSEDED, _E.STOP_ORDERED): Step(_S.SUPERSEDED, (Effect.STOP_PROCESSES,)),
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
        (_S.SUPERSEDED, _E.STOP_COMPLETED): Step(_S.SUPERSEDED, (Effect.REPORT_STOPPED,)),
        (_S.RUNNING, _E.PROCESSES_GONE): _STOPPED,
        (_S.STOPPING, _E.PROCESSES_GONE): _STOPPED,
        (_S.RESTARTING, _E.PROCESSES_GONE): _STOPPED,
        **{(state, _E.END_ORDERED): _CONCLUDED for state in _S},
        (_S.ENDED, _E.NEXT_JOB_JOINED): Step(_S.SUPERSEDED),
        # The job of the new launcher never started: what is kept is of the previous one.
        (_S.SUPERSEDED, _E.LAUNCHER_DISMISSED): _ENDED,
        (_S.STOPPING, _E.PREVIOUS_FORGOTTEN): _NEW,
        (_S.STOPPED, _E.PREVIOUS_FORGOTTEN): _NEW,
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
            (state, _E.NEXT_JOB_JOINED): "it has not ended: its launcher was replaced"
            for state in (_S.NEW, _S.RUNNING, _S.STOPPING, _S.RESTARTING, _S.STOPPED)
        },
        (_S.SUPERSEDED, _E.NEXT_JOB_JOINED): "one after the other may come",
        **{
            (state, _E.LAUNCHER_DISMISSED): "only its launcher is gone"
            for state in _S
            if state is not _S.SUPERSEDED
        },
        (_S.NEW, _E.PREVIOUS_FORGOTTEN): "there was none",
        **{
            (state, _E.PREVIOUS_FORGOTTEN): "a job that runs here has no other user"
            for state in (_S.RUNNING, _S.RESTARTING)
        },
        **{
            (state, _E.PREVIOUS_FORGOTTEN): "it stays over until the next plan comes"
            for state in (_S.ENDED, _S.SUPERSEDED)
        },
    }
)


def step(state: JobState, event: JobEvent) -> Step:
    """Return what an event does; an ignored pair changes nothing."""
    return TRANSITIONS.get((state, event), Step(state))
