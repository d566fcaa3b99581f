"""Job lifecycle as a table with effects; a pair that is neither in it nor ignored is refused.

A second table has what each state waits for, and for how long.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType

from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.timers import Overdue, TimerKind, Wait


class JobEvent(Enum):
    """Event that may change a job's state."""

    # The next generation has its members; it begins when the catalogue has found a state.
    PLANNED = auto()
    NO_CAPACITY = auto()
    # What ended it is outside of it, so its next attempt comes later.
    BACKED_OFF = auto()
    STATE_UNREACHABLE = auto()
    STEP_CHOSEN = auto()
    # Its only node's agent has begun a generation while the controller was away.
    ADOPTED = auto()
    ATTACHED = auto()
    RESTORED = auto()
    PROGRESSED = auto()
    STALLED = auto()
    FAULT = auto()
    # The job is to end, and its last step is not in storage yet.
    LAST_STEP_AWAITED = auto()
    OVER = auto()
    # None of its launchers is left, and its user has started it again.
    REPLACED = auto()
    # Its ranks have gone on behind a cut, and nobody has heard of their stop.
    WITHDRAWN = auto()


class JobEffect(Enum):
    """Effect of a transition: what the controller does besides changing the state."""

    ASK_CATALOGUE = auto()
    START_MEMBERS = auto()
    STOP_MEMBERS = auto()
    # Tell all launchers that they wait, and why, if that is news; or only those of spares.
    HOLD_LAUNCHERS = auto()
    HOLD_SPARES = auto()
    CLOSE_LEDGER = auto()
    # Tell everybody who has to do with the job that it is over.
    TELL_END = auto()
    # Let the next job of its name begin, if one waits for its end.
    RELEASE_NEXT = auto()


class TransitionRefusedError(Exception):
    """Something was said of a job that cannot happen in its state."""


@dataclass(frozen=True, slots=True)
class Step:
    """The state that an event leads to, and its effects in their order."""

    to: JobState
    effects: tuple[JobEffect, ...] = ()
    # What the job's time goes to from then on; None leaves that to whoever knows since when.
    stage: Category | None = None


_S, _E, _X = JobState, JobEvent, JobEffect
_STEPPING = (_S.RUNNING, _S.STALLED)
_ACTIVE = (_S.STARTING, _S.RESTORING, _S.WARMING, *_STEPPING)
_BETWEEN = (
    _S.STOPPING,
    _S.REPLANNING,
    _S.WAITING_CAPACITY,
    _S.BACKING_OFF,
    _S.WAITING_STATE,
)

_PLAN = Step(_S.REPLANNING, (_X.ASK_CATALOGUE,), Category.SCHEDULE)
_WAIT = Step(_S.WAITING_CAPACITY, (_X.HOLD_LAUNCHERS,), Category.CAPACITY)
_BACK_OFF = Step(_S.BACKING_OFF, (_X.HOLD_LAUNCHERS,), Category.BACKOFF)
_WAIT_FOR_STATE = Step(_S.WAITING_STATE, (_X.HOLD_LAUNCHERS,), Category.CAPACITY)
_START = Step(_S.STARTING, (_X.START_MEMBERS, _X.HOLD_SPARES), Category.ENV)
_STOP = Step(_S.STOPPING, (_X.STOP_MEMBERS,), Category.DRAIN)
_CLOSE = Step(_S.CLOSING, (_X.HOLD_LAUNCHERS,), Category.SAVE)
_END = Step(_S.ENDED, (_X.CLOSE_LEDGER, _X.TELL_END, _X.RELEASE_NEXT))

TRANSITIONS: Mapping[tuple[JobState, JobEvent], Step] = MappingProxyType(
    {
        (_S.FORMING, _E.PLANNED): _PLAN,
        (_S.STOPPING, _E.PLANNED): _PLAN,
        (_S.REPLANNING, _E.PLANNED): _PLAN,
        (_S.WAITING_CAPACITY, _E.PLANNED): _PLAN,
        (_S.BACKING_OFF, _E.PLANNED): _PLAN,
        (_S.REPLANNING, _E.STATE_UNREACHABLE): _WAIT_FOR_STATE,
        (_S.WAITING_CAPACITY, _E.STATE_UNREACHABLE): _WAIT_FOR_STATE,
        (_S.WAITING_STATE, _E.STATE_UNREACHABLE): _WAIT_FOR_STATE,
        (_S.REPLANNING, _E.STEP_CHOSEN): _START,
        (_S.WAITING_STATE, _E.STEP_CHOSEN): _START,
        (_S.STOPPING, _E.ADOPTED): Step(_S.STARTING),
        (_S.WAITING_CAPACITY, _E.WITHDRAWN): Step(_S.RUNNING, (_X.HOLD_SPARES,)),
        (_S.STARTING, _E.ATTACHED): Step(_S.RESTORING),
        (_S.STARTING, _E.RESTORED): Step(_S.WARMING),
        (_S.RESTORING, _E.RESTORED): Step(_S.WARMING),
        (_S.STARTING, _E.PROGRESSED): Step(_S.RUNNING),
        (_S.RESTORING, _E.PROGRESSED): Step(_S.RUNNING),
        (_S.WARMING, _E.PROGRESSED): Step(_S.RUNNING),
        (_S.RUNNING, _E.STALLED): Step(_S.STALLED),
        # Only of a generation that follows a hang, which may come again in its first step.
        (_S.WARMING, _E.STALLED): Step(_S.STALLED),
        (_S.STALLED, _E.PROGRESSED): Step(_S.RUNNING),
    }
    | {(state, _E.NO_CAPACITY): _WAIT for state in _BETWEEN}
    | {(state, _E.BACKED_OFF): _BACK_OFF for state in _BETWEEN}
    | {(state, _E.FAULT): _STOP for state in _ACTIVE}
    | {(state, _E.LAST_STEP_AWAITED): _CLOSE for state in (*_BETWEEN, *_ACTIVE)}
    | {(state, _E.OVER): _END for state in JobState if state is not _S.ENDED}
    | {
        (state, _E.REPLACED): Step(_S.ENDED, (_X.CLOSE_LEDGER, _X.RELEASE_NEXT))
        for state in (
            _S.FORMING,
            _S.WAITING_CAPACITY,
            _S.BACKING_OFF,
            _S.WAITING_STATE,
            _S.CLOSING,
        )
    }
)

# Pairs that come about and mean nothing, each with the reason.
IGNORED: Mapping[tuple[JobState, JobEvent], str] = MappingProxyType(
    {
        (_S.RUNNING, _E.ATTACHED): "told after its first steps: only the ledger takes note",
        (_S.RUNNING, _E.RESTORED): "told after its first steps: only the ledger takes note",
        (_S.STALLED, _E.ATTACHED): "told after its first steps: only the ledger takes note",
        (_S.STALLED, _E.RESTORED): "told after its first steps: only the ledger takes note",
    }
)

_ASK_OR_REPLACE = (Overdue.ASK_AGAIN, Overdue.COUNT_AS_GONE, Overdue.TELL_PEOPLE)

# What a job waits for in each state (recovery/deadlines.py sees to the timer ANSWER).
WAITS: Mapping[JobState, Wait] = MappingProxyType(
    {
        _S.FORMING: Wait(
            "launchers on as many nodes as it wants",
            TimerKind.FORMING,
            "last_call_timeout_ns",
            (Overdue.GO_ON,),
            endless="below its fewest nodes, only its user can start more launchers; those that "
            "wait are told how many have joined, and one whose nodes are not fit is told why",
        ),
        _S.STOPPING: Wait(
            "the word of each member that no process of the generation is left",
            TimerKind.ANSWER,
            "answer_timeout_ns",
            (Overdue.ASK_AGAIN, Overdue.COUNT_AS_GONE),
        ),
        _S.REPLANNING: Wait(
            "what the nodes hold that may have its state",
            TimerKind.ANSWER,
            "holdings_timeout_ns",
            (Overdue.ASK_AGAIN, Overdue.GO_ON),
        ),
        _S.WAITING_CAPACITY: Wait(
            "nodes that can take ranks",
            TimerKind.ANSWER,
            "answer_timeout_ns",
            (Overdue.ASK_AGAIN,),
            endless="without nodes there is nothing to run on: its launchers and 'everstep job' "
            "say which are missing, and each that comes back is planned with at once",
        ),
        _S.BACKING_OFF: Wait(
            "what its ranks died of to be over, for twice as long each time",
            TimerKind.BACKOFF,
            "restart_backoff_max_ns",
            (Overdue.GO_ON,),
        ),
        _S.WAITING_STATE: Wait(
            "a node that has its state",
            TimerKind.ANSWER,
            "holdings_timeout_ns",
            (Overdue.ASK_AGAIN, Overdue.GO_ON),
            endless="nobody makes a state up: it is asked for every 15 s, and its launchers and "
            "'everstep job' say who had it, and how to start from scratch",
        ),
        _S.STARTING: Wait(
            "processes on all members, and the word of all ranks that they run",
            TimerKind.ANSWER,
            "answer_timeout_ns",
            _ASK_OR_REPLACE,
            endless="a script without the library never says more than that its processes run",
        ),
        _S.RESTORING: Wait(
            "the state of all ranks", TimerKind.ANSWER, "restore_timeout_ns", _ASK_OR_REPLACE
        ),
        _S.WARMING: Wait(
            "the first step",
            TimerKind.ANSWER,
            "warmup_timeout_ns",
            _ASK_OR_REPLACE,
            endless="ranks that compile look like ranks that hang: where all agents answer, people "
            "decide",
        ),
        _S.RUNNING: Wait(
            "the next step", TimerKind.STALLED, "stall_timeout_ns", (Overdue.TELL_PEOPLE,)
        ),
        _S.STALLED: Wait(
            "the next step",
            TimerKind.STALLED,
            "stall_restart_timeout_ns",
            (Overdue.RESTART,),
            endless="an evaluation makes no steps either: who holds it back decides what is done "
            "(core/hangs/response.py), and where that is not known people do",
        ),
        _S.CLOSING: Wait(
            "its last step in storage",
            TimerKind.FINAL_SAVE,
            "final_save_timeout_ns",
            (Overdue.GO_ON, Overdue.TELL_PEOPLE),
        ),
        _S.ENDED: Wait(),
    }
)

# Processes of the generation run, or have been ordered to.
ACTIVE = frozenset(_ACTIVE)
# All its ranks have made a step.
STEPPING = frozenset(_STEPPING)
# Its processes run, and not all its ranks have made a step yet.
BEGINNING = ACTIVE - STEPPING
# Nothing of it goes on any more, but for its last step on the way to storage.
OVER = frozenset({_S.CLOSING, _S.ENDED})


def step(state: JobState, event: JobEvent) -> Step | None:
    """Return what the event does; None where it means nothing. Raises TransitionRefusedError."""
    if (state, event) in IGNORED:
        return None
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise TransitionRefusedError(f"a job that is {state.value} cannot take {event.name}")
    return found
