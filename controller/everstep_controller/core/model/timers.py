"""Timers: what each is for; TimerDue names the kind and the node, job or window."""

from enum import StrEnum


class TimerKind(StrEnum):
    """Purpose of a timer; the part of its name before the slash."""

    # Of nodes: a silence to judge, answers about it, checks, the end of a probation.
    SILENCE = "silence"
    CONFIRM = "confirm"
    CHECK = "check"
    SPARE = "spare"
    PROBATION = "probation"
    INJECTION = "injection"
    # Of a node's name, for which another agent asks.
    CONTENDER = "contender"
    # Of an isolation driver: the reading after a call has failed.
    ISOLATION = "isolation"
    # Of jobs: wanted nodes, an unreachable state, missing steps, steps
    # missing while an agent of theirs is away, the last step, all launchers, the
    # next job of the name, and the end of being kept.
    FORMING = "forming"
    RETRY = "retry"
    STALLED = "stalled"
    UNTOLD = "untold"
    FINAL_SAVE = "final_save"
    ABANDONED = "abandoned"
    NEXT = "next"
    FORGET = "forget"
    # Of planned work: a chosen step, a job that stands still, nodes that wait, a window.
    PLANNED = "planned"
    STILL = "still"
    GROWTH = "growth"
    MAINTENANCE = "maintenance"
    # Of the controller: refused agents, rejected records, stalls of its loop, and the rebuilding of
    # a journal.
    REFUSED = "refused"
    REJECTED = "rejected"
    CALM = "calm"
    RECOVERY = "recovery"
