"""What the figures of live hangs come to, and that parts of a run are scored as the whole."""

from dataclasses import replace
from pathlib import Path

import pytest
from hangs.cases import KINDS, PROGRAM_KINDS, RIGHT, Outcome, draw_case, plan
from hangs.live_runs import Injections, read, write
from hangs.scores import Score, interval, late_s, scored, scores

from everstep_common.hangs.reports.verdict import Confidence, Culprit, HangClass, HangVerdict

_VERDICT = HangVerdict(
    kind=HangClass.CPU_SIDE, culprits=(), confidence=Confidence.CERTAIN, sentence="", chain=()
)


def outcome(kind: str, seed: int, *named: int, told: HangClass | None = None) -> Outcome:
    """Return an outcome in which ranks were named, its own if none is given."""
    case = draw_case(kind, seed)
    kind_told = told or RIGHT[kind]
    ranks = named or (case.victim,)
    culprits = tuple(Culprit(rank, "n", kind_told, "") for rank in ranks)
    verdict = replace(_VERDICT, kind=kind_told, culprits=culprits)
    return Outcome(case, verdict=verdict, detected_s=4.0, first_s=5.0, verdict_s=7.0)


def by_name(outcomes: list[Outcome]) -> dict[str, Score]:
    return {one.name: one for one in scores(outcomes)}


def test_all_that_is_right_and_in_time_meets_every_target() -> None:
    found = by_name([outcome(kind, seed) for kind in KINDS for seed in range(10)])
    targets = [one for one in found.values() if one.target is not None]
    assert len(targets) == 8
    assert [one.name for one in targets if not one.met] == []


def test_an_innocent_rank_costs_precision_and_the_one_that_is_missed_recall() -> None:
    good = [outcome("sleep", seed) for seed in range(9)]
    case = draw_case("sleep", 9)
    found = by_name([*good, outcome("sleep", 9, (case.victim + 1) % case.ranks)])
    precision, recall = found["culprit precision"], found["culprit recall"]
    assert (precision.part, precision.of, precision.met) == (9, 10, False)
    assert (recall.part, recall.of, recall.met) == (9, 10, False)
    assert found["class right"].met


def test_a_job_that_goes_on_counts_in_no_share_but_its_own() -> None:
    found = by_name([outcome("sleep", 1), Outcome(draw_case("skip", 2))])
    assert found["culprit recall"].of == 1
    nothing = found["injections that hung nothing"]
    assert (nothing.part, nothing.of) == (1, 2)
    assert by_name([Outcome(draw_case("skip", 2))]) == {}


def test_a_save_that_waits_for_the_disk_may_be_called_storage_if_its_file_is_named() -> None:
    told = outcome("save", 1, told=HangClass.STORAGE)
    assert told.class_right
    assert not told.right
    assert told.verdict is not None
    culprits = tuple(
        replace(one, reason='it waits for "/tmp/1.saved"') for one in told.verdict.culprits
    )
    assert replace(told, verdict=replace(told.verdict, culprits=culprits)).right
    assert not outcome("loader", 1, told=HangClass.STORAGE).class_right


def test_what_comes_late_is_counted_and_its_percentile_told() -> None:
    late = [replace(outcome("sleep", seed), detected_s=5.1) for seed in range(2)]
    found = by_name([*late, *(outcome("sleep", seed) for seed in range(2, 20))])
    assert (found["detected within 5 s"].value, found["detected within 5 s"].met) == (0.9, False)
    assert found["fault → detected, 95th percentile"].value == 5.1
    assert not found["fault → detected, 95th percentile"].met
    assert found["culprit named, by two looks within 8 s"].met
    assert late_s([1.0] * 19 + [9.0]) == 1.0


def test_an_interval_holds_its_share() -> None:
    assert interval(0, 10)[0] == pytest.approx(0.0)
    low, high = interval(113, 115)
    assert (round(low, 3), round(high, 3)) == (0.939, 0.995)


def test_parts_of_a_run_have_each_injection_once(tmp_path: Path) -> None:
    whole = Injections(KINDS, 10_000, 15)
    halves = [replace(whole, part=number, parts=2) for number in range(2)]
    lanes = [half.lane(number, 3) for half in halves for number in range(3)]
    assert sum(lane.count for lane in lanes) == whole.count == 15 * len(KINDS)
    jobs = [job for lane in lanes for job in plan(whole.cases)[lane.part :: lane.parts]]
    assert sorted(map(str, jobs)) == sorted(map(str, plan(whole.cases)))


def test_outcomes_are_kept_and_scored_again(tmp_path: Path) -> None:
    outcomes = [outcome(kind, 3) for kind in KINDS] + [Outcome(draw_case("skip", 4))]
    paths = [tmp_path / "a", tmp_path / "b"]
    write(paths[0], outcomes[:5])
    write(paths[1], outcomes[5:])
    with paths[1].open("a") as file:
        file.write('{"kind": "sl')  # a run that was ended
    found = read(paths)
    assert found == outcomes
    assert list(scored(found)) == list(scored(outcomes))


def test_no_job_takes_more_injections_than_it_has_phases() -> None:
    survived = [kind for kind in KINDS if kind not in PROGRAM_KINDS | {"kill", "gil_computing"}]
    jobs = plan([draw_case(kind, seed) for kind in survived for seed in range(100)])
    assert max(map(len, jobs)) <= 12
