"""Where a job stands still: the same number for each evaluation, and another one for each hang."""

from dataclasses import replace

from everstep_common.hangs.looks import place_of
from everstep_common.hangs.reports.rank_report import ProcessFacts, RankHangReport
from everstep_common.hangs.reports.verdict import Confidence, Culprit, HangClass, HangVerdict

_TRAINS = ("train.py:120 <module>", "train.py:30 main", "train.py:12 step", "c10d.py:9 all_reduce")


def report(rank: int, *outermost_first: str, phase: str = "") -> RankHangReport:
    process = ProcessFacts(python_stack=outermost_first[::-1])
    return RankHangReport(rank=rank, phase=phase, process=process)


def verdict(*ranks: int, sure: bool = True) -> HangVerdict:
    culprits = tuple(Culprit(rank, "n", HangClass.CPU_SIDE, "late") for rank in ranks)
    confidence = Confidence.LIKELY if sure else Confidence.UNSURE
    return HangVerdict(HangClass.CPU_SIDE, culprits, confidence, "somebody is late")


WAITING = [report(rank, *_TRAINS) for rank in (1, 2, 3)]


def at(*stack: str, phase: str = "") -> str:
    """Return the place of rank 0, which holds three others back."""
    return place_of([report(0, *stack, phase=phase), *WAITING], verdict(0))


def test_an_evaluation_is_one_place_wherever_it_stands_within() -> None:
    begin = ("train.py:120 <module>", "train.py:44 main")
    place = at(*begin, "train.py:70 evaluate", "model.py:5 forward")
    assert place
    assert place == at(*begin, "train.py:71 evaluate")
    assert place == at(*begin)
    assert place != at("train.py:120 <module>", "train.py:45 main", "train.py:71 evaluate")


def test_a_rank_in_the_step_in_which_the_others_wait_is_elsewhere() -> None:
    stuck = at(*_TRAINS[:2], "train.py:10 step", "loader.py:8 next")
    assert stuck != at("train.py:120 <module>", "train.py:44 main")
    assert stuck != at(*_TRAINS)


def test_which_rank_it_is_and_where_the_others_wait_within_their_step_is_no_matter() -> None:
    stack = ("train.py:120 <module>", "train.py:44 main", "train.py:70 evaluate")
    others = [report(rank, *_TRAINS[:3], "c10d.py:11 barrier") for rank in (0, 1, 2)]
    assert place_of([*others, report(3, *stack)], verdict(3)) == at(*stack)


def test_the_phase_that_a_script_tells_is_part_of_its_place() -> None:
    assert at(phase="evaluation") != at(phase="training")
    assert at(phase="evaluation") == at(phase="evaluation")


def test_where_nobody_is_named_all_of_them_are_the_place() -> None:
    begin = ("train.py:120 <module>", "train.py:44 main")
    first = [report(rank, *begin, f"train.py:{70 + rank} evaluate") for rank in range(4)]
    later = [report(rank, *begin, f"train.py:{71 - rank} evaluate") for rank in range(4)]
    assert place_of(first, verdict(sure=False)) == place_of(later, verdict(0, sure=False)) != ""
    assert place_of(first, verdict(sure=False)) != place_of(WAITING, verdict(sure=False))


def test_a_rank_that_tells_nothing_has_no_place() -> None:
    assert at() == ""
    assert place_of([], verdict(0)) == ""
    assert place_of([replace(report(0), phase="save")], verdict(0)) != ""
