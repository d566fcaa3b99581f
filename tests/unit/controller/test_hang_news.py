"""Which looks at a job that stands still are told to the core."""

from dataclasses import replace

from everstep_common.hangs.looks import Look, Streak
from everstep_common.hangs.reports.verdict import Confidence, Culprit, HangClass, HangVerdict
from everstep_controller.hangs.stall_looks import Known, is_news

_S = 1_000_000_000


def _look(at_s: int, rank: int = 2, kind: HangClass = HangClass.CPU_SIDE, pause: str = "") -> Look:
    culprit = Culprit(rank, "n0", kind, "it does not come")
    verdict = HangVerdict(kind, (culprit,), Confidence.CERTAIN, "it does not come")
    return Look(at_s * _S, verdict, (), {}, pause)


def _known(told: Look | None, newest: Look, looks: int = 1, **more: int) -> Known:
    streak = Streak(newest, looks, newest.at_ns, newest.at_ns)
    return Known(streak, told, 1 if told else 0, **more)


def test_a_first_verdict_another_one_and_a_second_look_at_the_same_are_news() -> None:
    assert is_news(_known(None, _look(1)), 0, _S)
    assert not is_news(_known(None, _look(1, kind=HangClass.NO_WAIT)), 0, _S)
    assert is_news(_known(_look(1), _look(2, rank=3)), 0, 2 * _S)
    assert is_news(_known(_look(1), _look(2), looks=2), 0, 2 * _S)
    assert not is_news(replace(_known(_look(1), _look(3), looks=3), told_looks=2), 0, 3 * _S)


def test_a_pause_that_begins_or_ends_is_news() -> None:
    assert is_news(_known(_look(1), _look(2, pause="rank 0, save")), 0, 2 * _S)
    assert is_news(_known(_look(1, pause="rank 0, save"), _look(2)), 0, 2 * _S)


def test_a_lock_with_which_something_is_built_at_first_and_then_nothing_is_news() -> None:
    loops = _look(2, kind=HangClass.GIL_HELD)
    builds = replace(loops, works=True)
    assert is_news(_known(builds, loops), 0, 2 * _S)
    assert is_news(_known(loops, builds), 0, 2 * _S)
    assert not is_news(_known(loops, loops), 0, 2 * _S)


def test_what_is_due_is_told_whatever_was_told_before() -> None:
    same = replace(_known(_look(1), _look(9), looks=9, tellings=99), told_looks=9)
    assert is_news(same, 9 * _S, 9 * _S)
    assert not is_news(same, 10 * _S, 9 * _S)


def test_before_the_first_step_who_holds_a_job_back_is_news_when_no_rank_moves() -> None:
    waits = _look(70)
    known = Known(Streak(waits, 6, 5 * _S, 5 * _S))
    assert is_news(known, 0, 70 * _S, begins=True)
    known.streak = Streak(waits, 6, 20 * _S, 20 * _S)
    assert not is_news(known, 0, 70 * _S, begins=True)
    stopped = replace(waits, stuck=(2,))
    known.streak = Streak(stopped, 1, 70 * _S, 70 * _S)
    assert is_news(known, 0, 70 * _S, begins=True)


def test_ranks_that_tell_another_thing_each_time_do_not_fill_the_journal() -> None:
    known = _known(_look(0), _look(0))
    told = 0
    for second in range(0, 86_400, 30):
        look = _look(second, rank=second % 7)
        known.streak = Streak(look, 1, look.at_ns, look.at_ns)
        if is_news(known, 0, look.at_ns):
            told += 1
            known.told, known.told_ns, known.tellings = look, look.at_ns, known.tellings + 1
    assert told <= 16 + 86_400 / 600
