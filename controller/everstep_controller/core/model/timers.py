"""Timers: what each is for, and the waits that they end; TimerDue names kind and subject."""

from dataclasses import dataclass
from enum import Enum, StrEnum, auto


class TimerKind(StrEnum):
    """Purpose of a timer; the part of its name before the slash."""

    # Of nodes: a silence to judge, answers about it, a stream that stays open, checks, a pair
    # test, the end of a probation.
    SILENCE = "silence"
    STREAM = "stream"
    CONFIRM = "confirm"
    CHECK = "check"
    SPARE = "spare"
    PAIR = "pair"
    PROBATION = "probation"
    FLAPPING = "flapping"
    INJECTION = "injection"
    # Of automation's budgets: something in them counts no more.
    BUDGET = "budget"
    # Of a node's name, for which another agent asks.
    CONTENDER = "contender"
    # Of the record of a name that a node had before.
    RENAMED = "renamed"
    # Of an isolation driver: the reading after a call has failed.
    ISOLATION = "isolation"
    # Of jobs: who does not answer, wanted nodes, an unreachable state, the next attempt, missing
    # steps, a stand that is usual no more, steps missing while an agent of theirs is away, a stop
    # that may be withdrawn, nodes that may run what a journal has lost, the last step, all
    # launchers, the next job of the name, and the end of being kept.
    ANSWER = "answer"
    FORMING = "forming"
    RETRY = "retry"
    BACKOFF = "backoff"
    STALLED = "stalled"
    STAND = "stand"
    UNTOLD = "untold"
    WITHDRAW = "withdraw"
    RETURNS = "returns"
    FINAL_SAVE = "final_save"
    ABANDONED = "abandoned"
    NEXT = "next"
    FORGET = "forget"
    # Of planned work: a chosen step, an end that a user wants, a job that stands still, nodes that
    # wait, a window.
    PLANNED = "planned"
    ENDING = "ending"
    STILL = "still"
    GROWTH = "growth"
    MAINTENANCE = "maintenance"
    # Of the controller: refused agents, rejected records, stalls of its loop, and the rebuilding of
    # a journal.
    REFUSED = "refused"
    REJECTED = "rejected"
    CALM = "calm"
    RECOVERY = "recovery"


_WHILE_HALTED = frozenset({TimerKind.RECOVERY, TimerKind.CONTENDER, TimerKind.REFUSED})


def comes_due_while_halted(timer: str) -> bool:
    """Return whether a timer is of use to a halted controller; others wait until it acts again."""
    return timer.partition("/")[0] in _WHILE_HALTED


class Overdue(Enum):
    """What is done about a wait that its deadline ends; a table names them in their order."""

    # Order once more what is not answered.
    ASK_AGAIN = auto()
    # Go on without whoever does not answer: a spare takes its place, and what it runs is fenced.
    COUNT_AS_GONE = auto()
    # Go on with what there is.
    GO_ON = auto()
    # Stop what does not come further, and start it anew.
    RESTART = auto()
    # Say so, with what to type next.
    TELL_PEOPLE = auto()


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait of a state: for what, and what ends it when that does not come.

    Without a deadline there is a reason why it may last for ever; one that has both waits for ever
    for what the deadline does not end.
    """

    # Empty: it waits for nobody.
    awaits: str = ""
    timer: TimerKind | None = None
    # Field of the settings.
    deadline: str = ""
    on_deadline: tuple[Overdue, ...] = ()
    endless: str = ""
