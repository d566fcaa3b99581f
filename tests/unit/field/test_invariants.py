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
_SECOND_NS = 1_000_000_000


def _ledger(seconds: int) -> LedgerSeen:
    return LedgerSeen(seconds * _SECOND_NS, {"train": seconds * _SECOND_NS})


_NO_FILE = (
    "everstep-agent.service: Failed at step EXEC spawning /opt/everstep/bin/everstep-agent: No "
    "such file or directory"
)
_MISSING = "the judge exited 1: ModuleNotFoundError: No module named 'everstep_common.reports'"
_KILLED = Fault("rank-killed", 50.0, 50.5, ("m1",), "sdk-1", (Excuse.REDO, Excuse.WORDS))
_POWER = Fault(
    "machine-without-power",
    *(200.0, 230.0, ("m3",)),
    excuses=(Excuse.REDO, Excuse.LOST, Excuse.WAIT, Excuse.WORDS),
)
_DRAINED = Fault("drain-and-release", 250.0, 280.0, ("m2",), excuses=(Excuse.HELD,))
_CONTROLLER = Fault("controller-killed", 20.0, 20.5, ("m1", "m2", "m3"))
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
    slack_s=15.0,
)
# A job that trains, a rank that is stopped under it for two minutes and a half, and its verdict.
_FROZEN = Fault("rank-frozen", 300.0, 450.0, ("m1",), "sdk-2", aftermath_s=60.0)
_HUNG = replace(_RESULT, job="sdk-2", begun_s=280.0, ended_s=480.0, ledger=_ledger(190))
_TRAINING = JobSeen(296.0, "sdk-2", "running", 1, 40)
_STOPPED = "sdk-2: Rank 1 holds the job back: frozen. Its process is stopped (SIGSTOP, a debugger)"
_JUDGED = EventSeen(330.0, "HangJudged", "sdk-2", _STOPPED, 306.0)
# All samples are away for more than a minute.
_DATASET = Fault("dataset-hangs", 500.0, 575.0, ("m1", "m2", "m3"), aftermath_s=90.0)
_READING = replace(
    *(_RESULT,), job="samples-3", shape="samples", begun_s=480.0, ended_s=590.0, ledger=_ledger(105)
)
_READS = JobSeen(496.0, "samples-3", "running", 1, 40)
_STORAGE = "samples-3: Ranks 0-3 hold the job back: storage. They wait for /dataset/samples"
_STORAGE_TOLD = EventSeen(540.0, "HangJudged", "samples-3", _STORAGE, 512.0)
# Everything that is told in time, and what the cadence promised before a failure.
_CADENCE = EventSeen(
    *(48.0, "SnapshotCadence", "sdk-1"),
    "sdk-1: one step in 5 is snapshotted, and a failure costs up to 5 steps (1.5 s): a snapshot "
    "stalls 18.8 ms of a step of 300 ms",
)
_RESTARTED = Fault("job-restarted", 50.0, 50.5, ("m1",), "sdk-1", (Excuse.OWN_REDO,))
_FAULTS = (_KILLED, _POWER, _DRAINED, _CONTROLLER, _FROZEN, _DATASET)
# Faults happen, and what is seen of them is what they explain.
_QUIET = Round(
    number=0,
    seed=1,
    lasted_s=600.0,
    machines={"m1": "rack-1", "m2": "rack-2", "m3": "rack-1"},
    faults=_FAULTS,
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
        _TRAINING,
        JobSeen(310.0, "sdk-2", "stalled", 1, 40, hang=_STOPPED),
        JobSeen(440.0, "sdk-2", "stalled", 1, 40, hang=_STOPPED),
        _READS,
    ),
    redone=(Redo(52.0, "sdk-1", 25, 41), Redo(52.3, "sdk-1", 26, 25)),
    restores=(Restore("sdk-1", 2, 0, 39, True),),
    results=(_RESULT, _HUNG, _READING),
    lines=(
        LogLine(60.0, "m1", _AGENT, 4, "everstep_agent.uplink: controller a:1: it is away"),
        LogLine(
            *(70.0, "m2", _AGENT, 4),
            "everstep_agent.storage.job_storage: job sdk-1: /shared/a: no answer within 30 s",
        ),
    ),
    findings=(FindingSeen(75.0, "m2", "StorageFailing"),),
    events=(_CADENCE, _JUDGED, _STORAGE_TOLD),
    observation_gaps=("22.4 s: ['everstep nodes: no controller answers']",),
    late=(Lateness(30.0, 0.3),),
)
_JOBS = "job-sdk-1.service"
_LATE_FAULT = replace(_KILLED, begun_s=500.0, ended_s=500.5)


def _with_lines(*lines: LogLine) -> Round:
    return replace(_QUIET, lines=lines)


def _with_result(**changed: object) -> Round:
    one = replace(_RESULT, **changed)  # type: ignore[arg-type]
    return replace(_QUIET, results=(one, _HUNG, _READING))


def _without(*faults: Fault) -> tuple[Fault, ...]:
    return tuple(one for one in _FAULTS if one not in faults)


def _frozen(*jobs: JobSeen, events: tuple[EventSeen, ...] = (_STORAGE_TOLD,)) -> Round:
    return replace(_QUIET, jobs=(_TRAINING, *jobs, _READS), events=events)


_STOP = Fault("job-stopped", 100.0, 100.5, ("m1", "m2"), "sdk-1")


def _other_is_stopped() -> Fault:
    return replace(_STOP, job="sdk-2")


def _isolated_for_a_gpu() -> Round:
    fault = Fault("gpu-off-the-bus", 250.0, 280.0, ("m1",))
    seen = NodeSeen(260.0, "m1", "repairing", True, ("automation: GPU 0000:3b:00.0: Xid 79",))
    return replace(_QUIET, faults=(*_FAULTS, fault), nodes=(seen,))


PLANTED = {
    "jobs end as their scripts would": (
        _with_result(finished=False, codes={"m1": -1, "m2": -1}),
        _with_result(codes={"m1": 1, "m2": 0}),
        # An operator's stop is for one job, and stops it.
        replace(_with_result(codes={"m1": 1, "m2": 0}), faults=(*_FAULTS, _other_is_stopped())),
        replace(
            _with_result(codes={"m1": 1, "m2": 1}, ended_s=200.0, ledger=_ledger(189)),
            faults=(*_FAULTS, _STOP),
        ),
    ),
    "losses are equal where that is promised": (_with_result(losses_equal=False),),
    "every restore is right": (replace(_QUIET, restores=(Restore("sdk-1", 2, 0, 39, False),)),),
    "redone steps are explained by a fault": (
        replace(_QUIET, faults=_without(_KILLED)),
        # The fault came after it, on another machine, or could not be done.
        replace(_QUIET, faults=(*_without(_KILLED), _LATE_FAULT)),
        replace(_QUIET, faults=(*_without(_KILLED), replace(_KILLED, job="", nodes=("m3",)))),
        replace(_QUIET, faults=(*_without(_KILLED), replace(_KILLED, failed="no rank runs"))),
    ),
    "a failure costs no more steps than was told": (
        replace(_QUIET, redone=(Redo(52.0, "sdk-1", 40, 539),)),
        # The cadence that was told, without it, and one that was told to another job.
        replace(_QUIET, redone=(Redo(52.0, "sdk-1", 0, 25),)),
        replace(_QUIET, events=(_JUDGED, _STORAGE_TOLD), redone=(Redo(52.0, "sdk-1", 10, 31),)),
        replace(
            _QUIET,
            events=(replace(_CADENCE, subject="sdk-2"), _JUDGED, _STORAGE_TOLD),
            redone=(Redo(52.0, "sdk-1", 10, 31),),
        ),
        # An absurd promise is none.
        replace(
            _QUIET,
            events=(
                replace(_CADENCE, message="and a failure costs up to 533 steps (5.7e+02 s)"),
                *(_JUDGED, _STORAGE_TOLD),
            ),
            redone=(Redo(52.0, "sdk-1", 10, 250),),
        ),
        # A script's own checkpoints are closer.
        replace(
            _with_result(own_checkpoints=True, checkpoint_steps=20),
            redone=(Redo(52.0, "sdk-1", 20, 40),),
        ),
        replace(_with_result(own_checkpoints=True), redone=(Redo(52.0, "sdk-1", 20, 45),)),
    ),
    "the ledger sums to the wall clock": (
        _with_result(ledger=None),
        _with_result(ledger=LedgerSeen(99_000_000_000, {"train": 98_999_999_999})),
        _with_result(ledger=_ledger(6_100)),
        _with_result(ledger=_ledger(1)),
        _with_result(ledger=_ledger(80)),
        # As in records that do not tell what the field's own part was.
        _with_result(ledger=_ledger(1), slack_s=60.0),
    ),
    "no healthy node is lost": (
        replace(_QUIET, nodes=(NodeSeen(212.0, "m1", "lost", False),)),
        replace(_QUIET, nodes=(NodeSeen(400.0, "m3", "lost", False),)),
    ),
    "no healthy node is isolated": (
        replace(_QUIET, nodes=(NodeSeen(260.0, "m1", "healthy", True, ("automation: Xid",)),)),
        # Automation has no part in a drill, and operators none in a loss of power.
        replace(_QUIET, nodes=(NodeSeen(260.0, "m2", "healthy", True, ("automation: Xid",)),)),
        replace(_QUIET, nodes=(NodeSeen(212.0, "m3", "lost", True, ("operator: a drill",)),)),
        # Beside what an operator holds.
        replace(
            _QUIET,
            nodes=(
                NodeSeen(260.0, "m2", "healthy", True, ("operator: a drill",)),
                NodeSeen(268.0, "m2", "healthy", True, ("operator: a drill", "automation: Xid")),
            ),
        ),
        # What is told to enforce may; who only advises may not.
        replace(_isolated_for_a_gpu(), mode="advise"),
    ),
    "no hang is unexplained beyond its patience": (
        replace(
            _QUIET,
            jobs=(JobSeen(400.0, "sdk-1", "stalled"), JobSeen(470.0, "sdk-1", "stalled")),
        ),
        # A rank that is stopped has to be judged itself.
        _frozen(
            JobSeen(305.0, "sdk-2", "stalled", 1, 40), JobSeen(447.0, "sdk-2", "stalled", 1, 40)
        ),
    ),
    "what holds up a job is told in time": (
        # Stalled without a verdict, never even stalled, told of something else, or too late.
        _frozen(
            JobSeen(305.0, "sdk-2", "stalled", 1, 40), JobSeen(447.0, "sdk-2", "stalled", 1, 40)
        ),
        _frozen(
            JobSeen(305.0, "sdk-2", "running", 1, 40), JobSeen(447.0, "sdk-2", "running", 1, 40)
        ),
        _frozen(events=(replace(_JUDGED, message="No rank told its operations"), _STORAGE_TOLD)),
        _frozen(events=(replace(_JUDGED, happened_s=346.0), _STORAGE_TOLD)),
        _frozen(events=(replace(_JUDGED, at_s=380.0, happened_s=None), _STORAGE_TOLD)),
        _frozen(events=(replace(_JUDGED, subject="sdk-1"), _STORAGE_TOLD)),
        # Ranks that wait for storage.
        replace(_QUIET, events=(_JUDGED,)),
        replace(_QUIET, events=(_JUDGED, replace(_STORAGE_TOLD, happened_s=546.0))),
    ),
    "every wait is within its deadline": (
        replace(
            _with_result(ended_s=500.0),
            jobs=(JobSeen(300.0, "sdk-1", "starting"), JobSeen(440.0, "sdk-1", "starting")),
        ),
    ),
    "commands are answered": (
        replace(_QUIET, observation_gaps=("422.4 s: ['everstep nodes: no controller answers']",)),
        replace(_QUIET, faults=_without(_CONTROLLER)),
        # A controller that is killed refuses no certificate.
        replace(_QUIET, observation_gaps=("22.4 s: ['Error: they do not trust each other']",)),
    ),
    "the journal replays": (replace(_QUIET, replay="event 7 decided otherwise"),),
    "nothing is left behind": (replace(_QUIET, left_behind=("m1: process of alice",)),),
    "no warning without a finding or a reason": (
        replace(_QUIET, findings=()),
        replace(_QUIET, faults=()),
        # Of the SDK in a job: without a fault of the job, and what must never be said.
        _with_lines(
            LogLine(
                400.0, "m1", _JOBS, 6, "the agent is lost (a); training goes on without snapshots"
            )
        ),
        _with_lines(LogLine(60.0, "m1", _JOBS, 6, "WARNING:everstep:progress is not told: a")),
        _with_lines(LogLine(60.0, "m1", _AGENT, 4, "everstep_agent.uplink: a word of nobody")),
        _with_lines(LogLine(60.0, "m1", _AGENT, 3, _NO_FILE)),
        _with_lines(
            LogLine(
                *(60.0, "m1", "everstep-controller.service", 4),
                "everstep_controller.hangs.hang_watch: who holds sdk-1 back is not known: none",
            )
        ),
    ),
    "no part of Everstep is told as broken": (
        replace(_QUIET, findings=(FindingSeen(75.0, "controller", "JudgeFailed"),)),
        replace(_QUIET, findings=(FindingSeen(75.0, "controller", "JudgeFailed", _MISSING),)),
        replace(_QUIET, events=(EventSeen(75.0, "EventRejected", "sdk-1", "it raised"),)),
    ),
    "no crash and no refused call in any log": (
        _with_lines(LogLine(60.0, "m1", _AGENT, 3, "Traceback (most recent call last):\n ...")),
        _with_lines(LogLine(60.0, "m1", _AGENT, 6, "nice: [Errno 1] Operation not permitted")),
        _with_lines(LogLine(60.0, "m1", "job-a.service", 6, '  File "/x/everstep/run.py", line 1')),
        _with_lines(LogLine(60.0, "m1", _JOBS, 6, "everstep: prctl: Operation not permitted")),
        # Of a job, while the agent there is replaced.
        replace(
            _with_lines(
                LogLine(60.0, "m1", "job-a.service", 6, '  File "/x/everstep/run.py", line 1')
            ),
            faults=(Fault("agents-upgraded", 50.0, 70.0, ("m1",), excuses=(Excuse.TRACE,)),),
        ),
    ),
}


def test_files_that_an_upgrade_replaces_are_missing_for_a_while() -> None:
    upgrade = Fault("agents-upgraded", 50.0, 70.0, ("m1",), excuses=(Excuse.TRACE, Excuse.WORDS))
    seen = replace(
        _with_lines(LogLine(60.0, "m1", _AGENT, 3, _NO_FILE)),
        findings=(*_QUIET.findings, FindingSeen(75.0, "controller", "JudgeFailed", "it fails")),
        events=(*_QUIET.events, EventSeen(80.0, "JudgeFailed", "sdk-1", _MISSING)),
        faults=(*_QUIET.faults, upgrade),
    )
    assert [one.violations for one in judge(seen) if one.violations] == []


def test_a_launcher_that_comes_after_the_end_of_its_job_waits_in_vain() -> None:
    late = (JobSeen(300.0, "sdk-1", "forming"), JobSeen(900.0, "sdk-1", "forming"))
    seen = replace(_QUIET, jobs=(*_QUIET.jobs, *late))
    assert [one.violations for one in judge(seen) if one.violations] == []


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
    planned = replace(_QUIET, faults=(*_without(_KILLED), _RESTARTED))
    name = "redone steps are explained by a fault"
    for own, found in ((False, 1), (True, 0)):
        result = replace(_RESULT, own_checkpoints=own)
        judged = judge(replace(planned, results=(result, _HUNG, _READING)))
        assert [len(one.violations) for one in judged if one.invariant.name == name] == [found]


@pytest.mark.parametrize(("newest", "found"), [(25, 0), (26, 1)])
def test_a_planned_restart_explains_the_one_step_that_was_made_while_it_was_waited_for(
    newest: int, found: int
) -> None:
    faults = (*_without(_KILLED), _RESTARTED)
    planned = replace(_QUIET, faults=faults, redone=(Redo(52.0, "sdk-1", 25, newest),))
    name = "redone steps are explained by a fault"
    assert [len(one.violations) for one in judge(planned) if one.invariant.name == name] == [found]


@pytest.mark.parametrize(("after", "found"), [(0, 0), (1, 1)])
def test_an_agent_that_is_away_explains_steps_made_again_after_the_last_one(
    after: int, found: int
) -> None:
    away = Fault("agent-away-for-minutes", 45.0, 195.0, ("m1",), "sdk-1")
    redone = (Redo(52.0, "sdk-1", 30, _RESULT.steps - 1 - after),)
    seen = replace(_QUIET, faults=(*_without(_KILLED), away), redone=redone)
    name = "redone steps are explained by a fault"
    assert [len(one.violations) for one in judge(seen) if one.invariant.name == name] == [found]


def test_each_invariant_has_a_planted_violation() -> None:
    assert set(PLANTED) == {one.name for one in INVARIANTS}


def test_what_is_timed_is_void_in_minutes_in_which_the_machine_was_late() -> None:
    stalled, _ = PLANTED["no hang is unexplained beyond its patience"]
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


@pytest.mark.parametrize(("ended_s", "explained"), [(20.0, True), (5.0, False)])
def test_a_job_that_waited_after_a_fault_makes_its_steps_again_much_later(
    ended_s: float, explained: bool
) -> None:
    fault = replace(_KILLED, begun_s=4.0, ended_s=ended_s, aftermath_s=0.0)
    redone = (Redo(300.0, "sdk-1", 10, 31, since_s=18.0),)
    seen = replace(_QUIET, faults=(*_without(_KILLED), fault), redone=redone)
    name = "redone steps are explained by a fault"
    [judged] = [one for one in judge(seen) if one.invariant.name == name]
    assert (not judged.violations) is explained


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


def test_time_in_which_nobody_could_judge_is_not_counted() -> None:
    name = "what holds up a job is told in time"
    late = _frozen(events=(replace(_JUDGED, happened_s=370.0), _STORAGE_TOLD))
    away = Fault("controller-away", 305.0, 320.0, ("m1", "m2", "m3"))
    for faults, found in ((_FAULTS, 1), ((*_FAULTS, away), 0)):
        judged = {one.invariant.name: one for one in judge(replace(late, faults=faults))}
        assert len(judged[name].violations) == found


def test_a_job_that_has_not_begun_to_train_need_not_be_judged() -> None:
    starts = _frozen(events=(_STORAGE_TOLD,))
    starts = replace(starts, jobs=(replace(_TRAINING, state="starting", step=-1), _READS))
    assert [one.violations for one in judge(starts) if one.violations] == []


def test_an_agent_that_is_away_explains_the_steps_of_that_time() -> None:
    name = "a failure costs no more steps than was told"
    away = Fault("agent-away", 20.0, 45.0, ("m1",))
    lost = replace(_QUIET, redone=(Redo(52.0, "sdk-1", 40, 139, since_s=20.0),))
    for faults, found in ((_FAULTS, 1), ((*_FAULTS, away), 0)):
        judged = {one.invariant.name: one for one in judge(replace(lost, faults=faults))}
        assert len(judged[name].violations) == found


def test_who_enforces_may_isolate_for_a_finding() -> None:
    assert [one.violations for one in judge(_isolated_for_a_gpu()) if one.violations] == []


def test_a_ledger_need_not_have_the_time_before_any_controller_heard_of_the_job() -> None:
    name = "the ledger sums to the wall clock"
    short = _with_result(ledger=_ledger(60))
    away = Fault("controller-away", 5.0, 30.0, ("m1", "m2", "m3"))
    backup = Fault("old-backup-restored", 40.0, 41.0, ("m1", "m2", "m3"))
    for faults, found in ((_FAULTS, 1), ((*_FAULTS, away), 0), ((*_FAULTS, backup), 0)):
        judged = {one.invariant.name: one for one in judge(replace(short, faults=faults))}
        assert len(judged[name].violations) == found


def test_a_job_that_an_operator_stops_need_not_come_to_its_last_step() -> None:
    stopped = _with_result(codes={"m1": 1, "m2": 1}, losses_equal=False)
    assert len([one for one in judge(stopped) if one.violations]) == 2
    stopped = replace(stopped, faults=(*_FAULTS, _STOP))
    assert [one.violations for one in judge(stopped) if one.violations] == []


def test_what_held_up_a_job_that_has_begun_anew_need_not_be_told() -> None:
    anew = _frozen(JobSeen(320.0, "sdk-2", "running", 2, 41), JobSeen(440.0, "sdk-2", "running", 2))
    assert [one.violations for one in judge(anew) if one.violations] == []


def test_a_job_whose_agent_stays_away_for_minutes_is_told_of() -> None:
    name = "what holds up a job is told in time"
    away = Fault("agent-away-for-minutes", 300.0, 450.0, ("m1",), "sdk-2")
    told = EventSeen(380.0, "StepsUnsaved", "sdk-2", "a failure of sdk-2 now costs 9 steps", 371.0)
    for events, found in (((), 1), ((told,), 0)):
        round_ = _frozen(events=(*events, _STORAGE_TOLD))
        round_ = replace(round_, faults=(*_without(_FROZEN), away))
        judged = {one.invariant.name: one for one in judge(round_)}
        assert len(judged[name].violations) == found


def test_an_agent_that_is_away_below_one_job_is_away_below_the_others_there_as_well() -> None:
    away = Fault("agent-away-for-minutes", 300.0, 450.0, ("m1",), "sdk-2")
    killed = replace(away, kind="rank-killed")
    for excuse in (Excuse.UNSAVED, Excuse.WAIT, Excuse.WORDS):
        assert explains(away, excuse, 400.0, ("m1", "m2"), "sdk-1")
        assert not explains(away, excuse, 400.0, ("m2", "m3"), "sdk-1")
    assert not explains(killed, Excuse.REDO, 400.0, ("m1", "m2"), "sdk-1")
    assert explains(killed, Excuse.REDO, 400.0, ("m1", "m2"), "sdk-2")
