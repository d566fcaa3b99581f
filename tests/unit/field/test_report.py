"""Report of the field: what rounds came to, as figures and as a table."""

from dataclasses import replace

from field.observation.records import Fault, NodeSeen, Redo, Restore, Round
from field.report import figures, report, steps_lost, text
from field.rounds import mode_of

_ROUND = Round(
    number=0,
    seed=1000,
    lasted_s=600.0,
    machines={"m1": "rack-1", "m2": "rack-2"},
    nodes=(NodeSeen(70.0, "m1", "repairing", True, ("automation: Xid 79",)),),
    faults=(
        Fault("machines-booted", -300.0, 0.0),
        Fault("rank-killed", 50.0, 50.5, ("m1",), "sdk-1"),
        Fault("rank-killed", 80.0, 80.5, failed="no rank runs"),
    ),
    # The second generation went back to step 40 when 42 had been written down.
    redone=(Redo(52.0, "sdk-1", 41, 42),),
    restores=(
        *(Restore("sdk-1", 2, rank, 40, True) for rank in range(3)),
        *(Restore("sdk-1", 3, rank, 90, rank != 1) for rank in range(3)),
    ),
)


def test_figures_count_faults_that_were_done_and_restores_of_each_rank() -> None:
    told = {one["name"]: one["value"] for one in figures(report([_ROUND]))}
    assert (told["faults"], told["rank restores"], told["rank restores, wrong"]) == (1, 6, 1)
    assert told["violations: every restore is right"] == 1
    assert "6 rank restores proven, 1 wrong" in text(report([_ROUND]))


def test_steps_lost_are_those_written_down_beyond_the_one_that_all_ranks_were_given() -> None:
    assert sorted(steps_lost(report([_ROUND]))) == [0, 2]


def test_what_is_claimed_of_a_controller_that_only_advises_is_counted_in_its_rounds_alone() -> None:
    name = "no healthy node is isolated"
    for advising, found in ((0, 0), (1, 1), (2, 2)):
        modes = ["advise"] * advising + ["enforce"] * (2 - advising)
        made = report([replace(_ROUND, mode=mode) for mode in modes])
        told = {one["name"]: one["value"] for one in figures(made)}
        assert told["rounds in advise, as shipped"] == advising
        assert told[f"violations: {name}"] == 2
        assert told[f"violations in advise: {name}"] == found


def test_most_rounds_are_played_as_shipped_the_first_one_among_them() -> None:
    assert [mode_of(number) for number in range(4)] == ["advise", "enforce", "advise", "advise"]
