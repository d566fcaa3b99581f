"""Invariants of the field: each finds one planted violation, and a round without any is quiet."""

from dataclasses import replace

import pytest

from field.invariants.table import INVARIANTS, judge, too_late, void_minutes
from field.invariants.violations import explains
from field.observation.records import (
    EventSeen,
    Excuse,
    Fault,
    FindingSeen,
    JobResult,
    JobSeen,
    Lateness,
    LedgerSeen,
    LogLine,
    NodeSeen,
    Redo,
    Restore,
    Round,
)

_AGENT = "everstep-agent.service"
_KILLED = Fault("rank-killed", 50.0, 50.5, ("m1",), "sdk-1", (Excuse.REDO, Excuse.WORDS))
_POWER = Fault(
    "machine-without-power",
    *(200.0, 230.0, ("m3",)),
    excuses=(Excuse.REDO, Excuse.LOST, Excuse.WAIT, Excuse.WORDS),
)
_DRAINED = Fault("drain-and-release", 250.0, 280.0, ("m2",), excuses=(Excuse.ISOLATED,))
_RESULT = JobResult(
    job="sdk-1",
    shape="sdk",
    nodes=("m1", "m2"),
    begun_s=10.0,
    ended_s=110.0,
    finished=True,
    codes={"m1": 0, "m2": 0},
    steps=300,
    losses_equal=True,
    promised_equal=True,
    ledger=LedgerSeen(99_000_000_000, {"train": 90_000_000_000, "start": 9_000_000_000}),
)
_RESTARTED = Fault("job-restarted", 50.0, 50.5, ("m1",), "sdk-1", (Excuse.OWN_REDO,))
# Faults happen, and what is seen of them is what they explain.
_QUIET = Round(
    number=0,
    seed=1,
    lasted_s=600.0,
    machines={"m1": "rack-1", "m2": "rack-2", "m3": "rack-1"},
    faults=(_KILLED, _POWER, _DRAINED),
    nodes=(
        NodeSeen(100.0, "m3", "healthy", True),
        NodeSeen(212.0, "m3", "lost", False, reason="silent for 5 s"),
        NodeSeen(240.0, "m3", "healthy", True),
        NodeSeen(260.0, "m2", "healthy", True, ("operator: a drill",)),
    ),
    jobs=(
        JobSeen(30.0, "sdk-1", "starting"),
        JobSeen(40.0, "sdk-1", "running", 1, 40),
        JobSeen(60.0, "sdk-1", "stalled", 1, 40, hang="rank 1 is stopped"),
        JobSeen(130.0, "sdk-1", "stalled", 1, 40, hang="rank 1 is stopped"),
    ),
    redone=(Redo(52.0, "sdk-1", 40, 41),),
    restores=(Restore("sdk-1", 2, 0, 39, True),),
    results=(_RESULT,),
    lines=(
        LogLine(60.0, "m1", _AGENT, 4, "everstep_agent.uplink: controller a:1: it is away"),
        LogLine(
            *(70.0, "m2", _AGENT, 4),
            "everstep_agent.storage.job_storage: job sdk-1: /shared/a: no answer within 30 s",
        ),
    ),
    findings=(FindingSeen(75.0, "m2", "StorageFailing"),),
    late=(Lateness(30.0, 0.3),),
)
_LATE_FAULT = replace(_KILLED, begun_s=500.0, ended_s=500.5)


def _with_lines(*lines: LogLine) -> Round:
    return replace(_QUIET, lines=lines)


def _with_result(**changed: object) -> Round:
    return replace(_QUIET, results=(replace(_RESULT, **changed),))  # type: ignore[arg-type]


PLANTED = {
    "jobs end as their scripts would": (
        _with_result(finished=False, codes={"m1": -1, "m2": -1}),
        _with_result(codes={"m1": 1, "m2": 0}),
    ),
    "losses are equal where that is promised": (_with_result(losses_equal=False),),
    "every restore is right": (replace(_QUIET, restores=(Restore("sdk-1", 2, 0, 39, False),)),),
    "redone steps are explained by a fault": (
        replace(_QUIET, faults=(_POWER, _DRAINED)),
        # The fault came after it, on another machine, or could not be done.
        replace(_QUIET, faults=(_LATE_FAULT, _POWER, _DRAINED)),
        replace(_QUIET, faults=(replace(_KILLED, job="", nodes=("m3",)), _POWER, _DRAINED)),
        replace(_QUIET, faults=(replace(_KILLED, failed="no rank runs"), _POWER, _DRAINED)),
    ),
    "the ledger sums to the wall clock": (
        _with_result(ledger=None),
        _with_result(ledger=LedgerSeen(99_000_000_000, {"train": 98_999_999_999})),
        _with_result(ledger=LedgerSeen(6_100_000_000_000, {"train": 6_100_000_000_000})),
    ),
    "no healthy node is lost": (
        replace(_QUIET, nodes=(NodeSeen(212.0, "m1", "lost", False),)),
        replace(_QUIET, nodes=(NodeSeen(400.0, "m3", "lost", False),)),
    ),
    "no healthy node is isolated": (
        replace(_QUIET, nodes=(NodeSeen(260.0, "m1", "healthy", True, ("automation: Xid",)),)),
    ),
    "no hang is unexplained beyond its patience": (
        replace(
            _QUIET,
            jobs=(JobSeen(400.0, "sdk-1", "stalled"), JobSeen(470.0, "sdk-1", "stalled")),
        ),
    ),
    "every wait is within its deadline": (
        replace(
            _QUIET,
            jobs=(JobSeen(300.0, "sdk-1", "starting"), JobSeen(440.0, "sdk-1", "starting")),
        ),
    ),
    "the journal replays": (replace(_QUIET, replay="event 7 decided otherwise"),),
    "nothing is left behind": (replace(_QUIET, left_behind=("m1: process of alice",)),),
    "no warning without a finding or a reason": (
        replace(_QUIET, findings=()),
        replace(_QUIET, faults=()),
        _with_lines(LogLine(60.0, "m1", _AGENT, 4, "everstep_agent.uplink: a word of nobody")),
        _with_lines(
            LogLine(
                *(60.0, "m1", "everstep-controller.service", 4),
                "everstep_controller.hangs.hang_watch: who holds sdk-1 back is not known: none",
            )
        ),
    ),
    "no part of Everstep is told as broken": (
        replace(_QUIET, findings=(FindingSeen(75.0, "controller", "JudgeFailed"),)),
        replace(_QUIET, events=(EventSeen(75.0, "EventRejected", "sdk-1", "it raised"),)),
    ),
    "no crash and no refused call in any log": (
        _with_lines(LogLine(60.0, "m1", _AGENT, 3, "Traceback (most recent call last):\n ...")),
        _with_lines(LogLine(60.0, "m1", _AGENT, 6, "nice: [Errno 1] Operation not permitted")),
        _with_lines(LogLine(60.0, "m1", "job-a.service", 6, '  File "/x/everstep/run.py", line 1')),
        # Of a job, while the agent there is replaced.
        replace(
            _with_lines(
                LogLine(60.0, "m1", "job-a.service", 6, '  File "/x/everstep/run.py", line 1')
            ),
            faults=(Fault("agents-upgraded", 50.0, 70.0, ("m1",), excuses=(Excuse.TRACE,)),),
        ),
    ),
}


def test_a_round_in_which_everything_is_explained_violates_nothing() -> None:
    assert [one.violations for one in judge(_QUIET) if one.violations] == []


@pytest.mark.parametrize(
    ("name", "planted"), [(name, one) for name, many in PLANTED.items() for one in many]
)
def test_an_invariant_finds_its_planted_violation(name: str, planted: Round) -> None:
    judged = {one.invariant.name: one for one in judge(planted)}
    assert judged[name].violations or judged[name].void


def test_a_planned_restart_explains_what_only_a_script_with_its_own_checkpoints_makes_again() -> (
    None
):
    planned = replace(_QUIET, faults=(_RESTARTED, _POWER, _DRAINED))
    name = "redone steps are explained by a fault"
    for own, found in ((False, 1), (True, 0)):
        result = replace(_RESULT, own_checkpoints=own)
        judged = judge(replace(planned, results=(result,)))
        assert [len(one.violations) for one in judged if one.invariant.name == name] == [found]


def test_each_invariant_has_a_planted_violation() -> None:
    assert set(PLANTED) == {one.name for one in INVARIANTS}


def test_what_is_timed_is_void_in_minutes_in_which_the_machine_was_late() -> None:
    (stalled,) = PLANTED["no hang is unexplained beyond its patience"]
    late = replace(stalled, late=(Lateness(430.0, 0.9),))
    judged = {one.invariant.name: one for one in judge(late)}
    assert judged["no hang is unexplained beyond its patience"].violations == ()
    assert len(judged["no hang is unexplained beyond its patience"].void) == 1
    assert void_minutes(late) == {7}
    assert not too_late(late)


def test_what_is_a_state_is_never_void() -> None:
    (wrong,) = PLANTED["every restore is right"]
    late = replace(wrong, late=tuple(Lateness(60.0 * minute, 2.0) for minute in range(10)))
    judged = {one.invariant.name: one for one in judge(late)}
    assert len(judged["every restore is right"].violations) == 1
    assert too_late(late)


def test_a_cut_of_one_machine_that_concerns_all_explains_redone_steps_of_its_own_ranks_only() -> (
    None
):
    cut = Fault(
        *("controller-cut-off", 40.0, 60.0, ("m1", "m2", "m3")),
        excuses=(Excuse.REDO, Excuse.WAIT),
        broken=("m1",),
    )
    assert explains(cut, Excuse.REDO, 50.0, ("m1", "m2"))
    assert not explains(cut, Excuse.REDO, 50.0, ("m2", "m3"))
    assert explains(cut, Excuse.WAIT, 50.0, ("m2", "m3"))
