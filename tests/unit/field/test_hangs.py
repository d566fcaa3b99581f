"""Runs of hangs under the shipped units: what is left to run, what is kept, what is told."""

from pathlib import Path

from field.hangs.report import figures, markdown, text
from field.hangs.runs import BOUND_S, KINDS, HangRun, Runs, kept, left

_GIL = "gil, after an evaluation"


def test_each_kind_is_run_until_it_has_run_so_often(tmp_path: Path) -> None:
    found = [HangRun("gil"), HangRun("gil"), HangRun("stop", failed="no steps")]
    names = [one.name for one in left(found, 2)]
    assert names.count("gil") == 0
    assert names.count("stop") == 2  # one that failed says nothing
    assert len(names) == 2 * (len(KINDS) - 1)
    assert [one.name for one in left(found, 3, ("gil",))] == ["gil"]


def test_runs_are_kept_one_by_one_and_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    runs = Runs(path, 1, ("gil", "stop"), 7)
    taken = runs.take()
    number, kind = next(taken)
    made = HangRun(kind.name, ("m2", "m3"), 6.5, {"HangJudged": 4.0}, {"HangJudged": "rank 1"}, 1)
    runs.keep(made)
    assert kept(path) == [made]
    again = Runs(path, 1, ("gil", "stop"), 7)
    (other,) = again.take()
    assert other[0] == number + 1
    assert {other[1].name, kind.name} == {"gil", "stop"}


def test_the_report_has_times_shares_and_what_was_missed() -> None:
    seen = [HangRun("stop", next_step_s=6.0, marks={"JobStalled": 4.0, "HangJudged": 4.5})] * 19
    never = HangRun("stop", marks={})
    rows = {one["name"]: one for one in figures([*seen, never, HangRun("gil", failed="no steps")])}
    assert rows["runs"]["value"] == 20
    assert rows["runs that say nothing"]["value"] == 1
    assert rows["stop → detected, p50"]["value"] == 4.0
    assert rows["stop → new step, most"]["value"] == BOUND_S
    share = rows["stop → detected: share of 20 later than 5 s"]
    assert share["value"] == 0.05
    assert not share["missed"]


def test_more_than_one_late_run_of_twenty_is_missed() -> None:
    late = [HangRun(_GIL, next_step_s=10.5, marks={"JobStalled": 5.5})] * 2
    found = [HangRun(_GIL, next_step_s=7.0, marks={"JobStalled": 4.0})] * 18 + late
    missed = [one["name"] for one in figures(found) if one["missed"]]
    assert missed == [
        f"{_GIL} → detected: share of 20 later than 5 s",
        f"{_GIL} → new step: share of 20 later than 10 s",
    ]
    assert f"{missed[0]}" in text(found)
    assert "0.1 (missed)" in markdown(found)


def test_a_loop_with_the_lock_has_the_time_after_which_the_product_takes_it_for_endless() -> None:
    rows = figures([HangRun("loop", next_step_s=19.0, marks={"HangJudged": 4.0})])
    assert [one["name"] for one in rows if one["missed"]] == []
    late = figures([HangRun("loop", next_step_s=26.0, marks={"HangJudged": 4.0})])
    assert any(one["missed"] for one in late)


def test_a_pause_that_is_restarted_is_missed_and_a_dead_rank_is_not_looked_for() -> None:
    found = [HangRun("save", restarts=1), HangRun("dead", next_step_s=1.2)]
    rows = {one["name"]: one for one in figures(found)}
    assert rows["save: restarts in 1 runs"]["missed"]
    assert not any("dead → detected" in name for name in rows)
