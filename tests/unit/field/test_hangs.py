"""Runs of hangs under the shipped units: what is left to run, what is kept, what is told."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from everstep.launch.standby.imports import imports_of
from field.hangs.__main__ import parse
from field.hangs.kinds import KINDS, SCRIPTS, cases
from field.hangs.report import figures, markdown, text
from field.hangs.runs import BOUND_S, HangRun, Runs, kept, left
from field.jobs.shapes import HANGING
from field.machines.image import REPOSITORY

_GIL = "gil, after an evaluation"


def test_each_kind_is_run_until_it_has_run_so_often_with_each_script() -> None:
    found = [HangRun("gil"), HangRun("gil"), HangRun("stop", failed="no steps")]
    names = [one.name for one in left(found, 2)]
    assert names.count("numpy, gil") == 0
    assert names.count("torch, gil") == 2
    assert names.count("numpy, stop") == 2  # one that failed says nothing
    assert len(names) == 2 * (len(SCRIPTS) * len(KINDS) - 1)
    assert [one.name for one in left(found, 3, ("numpy",), ("gil",))] == ["numpy, gil"]


def test_runs_are_kept_one_by_one_and_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    wanted = left([], 1, ("torch",), ("gil", "stop"))
    taken = Runs(path, wanted, 7, 8).take()
    runs = Runs(path, wanted, 7, 8)
    number, case = next(taken)
    marks = {"HangJudged": 4.0}
    made = HangRun(
        case.kind.name, ("m2", "m3"), 6.5, marks, {"HangJudged": "rank 1"}, 1, script="torch"
    )
    runs.keep(made)
    assert kept(path) == [made]
    again = left(kept(path), 1, ("torch",), ("gil", "stop"))
    (other,) = Runs(path, again, 7, 8).take()
    assert other[0] == number + 1
    assert {other[1].name, case.name} == {"torch, gil", "torch, stop"}


def test_runs_that_were_kept_before_scripts_had_names_are_of_numpy(tmp_path: Path) -> None:
    told = asdict(HangRun("gil", ("m2", "m3"), 6.5))
    del told["script"]
    (tmp_path / "runs.jsonl").write_text(json.dumps(told) + "\n")
    assert [one.name for one in kept(tmp_path / "runs.jsonl")] == ["numpy, gil"]


def test_no_more_ranks_with_torch_are_alive_than_may_be(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs.jsonl", left([], 2, only=("stop",)), 1, 8)
    tracks = [runs.take() for _ in range(5)]
    begun = [next(track, None) for track in tracks]
    assert sorted(one[1].script.name for one in begun if one) == ["numpy"] * 2 + ["torch"] * 2
    assert begun[4] is None  # there is nothing left


def test_a_run_with_torch_begins_when_another_one_has_ended(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs.jsonl", left([], 3, ("torch",), ("stop",)), 1, 8)
    first, second, third = (runs.take() for _ in range(3))
    assert next(first)[1].name == "torch, stop"
    assert next(second)[1].name == "torch, stop"
    assert next(third, None) is None
    assert next(first)[0] == 2
    assert next(second, None) is None


def test_a_run_that_breaks_off_gives_back_its_ranks(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs.jsonl", left([], 2, ("torch",), ("stop",)), 1, 4)
    broken = runs.take()
    assert next(broken)[1].name == "torch, stop"
    broken.close()
    assert next(runs.take())[1].name == "torch, stop"


def test_the_script_of_every_case_is_on_the_machines_and_its_package_is_named() -> None:
    scripts = {path.name for path in (REPOSITORY / "tests/field/jobs/scripts").glob("*.py")}
    for case in cases():
        shape = case.shape
        assert shape.script in scripts
        assert shape.script != HANGING or shape.arguments[0] in scripts
        assert shape.torch_ranks == (4 if case.script.name == "torch" else 0)
        assert shape.own_checkpoints
        assert case.steps >= 60
        assert ("hanging" in shape.script) is (case.kind.how in ("gil", "loop"))


def test_all_scripts_are_run_as_a_rule_and_too_few_ranks_with_torch_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert parse([]).scripts == ["numpy", "torch"]
    assert parse(["--scripts", "numpy", "--torch-ranks", "0"]).scripts == ["numpy"]
    with pytest.raises(SystemExit):
        parse(["--torch-ranks", "3"])
    assert "--torch-ranks: a job has 4" in capsys.readouterr().err


def test_the_report_has_times_shares_and_what_was_missed() -> None:
    seen = [HangRun("stop", next_step_s=6.0, marks={"JobStalled": 4.0, "HangJudged": 4.5})] * 19
    never = HangRun("stop", marks={})
    rows = {one["name"]: one for one in figures([*seen, never, HangRun("gil", failed="no steps")])}
    assert rows["numpy, runs"]["value"] == 20
    assert rows["numpy, runs that say nothing"]["value"] == 1
    assert rows["numpy, stop → detected, p50"]["value"] == 4.0
    assert rows["numpy, stop → new step, most"]["value"] == BOUND_S
    share = rows["numpy, stop → detected: share of 20 later than 5 s"]
    assert share["value"] == 0.05
    assert not share["missed"]
    assert not any("torch" in name for name in rows)


def test_each_script_has_rows_of_its_own() -> None:
    quick = HangRun("dead", next_step_s=0.4)
    slow = HangRun("dead", next_step_s=12.0, script="torch")
    rows = {one["name"]: one["value"] for one in figures([quick, slow])}
    assert rows["numpy, dead → new step, p50"] == 0.4
    assert rows["torch, dead → new step, p50"] == 12.0
    assert rows["torch, runs"] == 1


def test_more_than_one_late_run_of_twenty_is_missed() -> None:
    late = [HangRun(_GIL, next_step_s=10.5, marks={"JobStalled": 5.5})] * 2
    found = [HangRun(_GIL, next_step_s=7.0, marks={"JobStalled": 4.0})] * 18 + late
    missed = [one["name"] for one in figures(found) if one["missed"]]
    assert missed == [
        f"numpy, {_GIL} → detected: share of 20 later than 5 s",
        f"numpy, {_GIL} → new step: share of 20 later than 10 s",
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
    assert rows["numpy, save: restarts in 1 runs"]["missed"]
    assert not any("dead → detected" in name for name in rows)


def test_standbys_of_both_scripts_with_torch_can_import_it(tmp_path: Path) -> None:
    scripts = REPOSITORY / "tests/field/jobs/scripts"
    # On the machines examples and scripts are in one folder.
    for path in (*scripts.glob("*.py"), REPOSITORY / "examples/digits.py"):
        (tmp_path / path.name).symlink_to(path)
    for case in cases(("torch",)):
        modules = imports_of(tmp_path / case.shape.script, tmp_path)
        assert {"torch", "torch.distributed", "torch.nn.parallel"} <= set(modules)
