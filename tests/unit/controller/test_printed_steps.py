"""Which ranks of a script that only prints its steps make steps, and which do not."""

from everstep_common.reports.rank_columns import RankRow, pack_ranks
from everstep_controller.telemetry.printed_steps import printed_steps
from everstep_controller.telemetry.rank_progress import ToldProgress

_S = 10**9


def _told(first: int, *printed: tuple[int | None, int], told_s: int = 100) -> ToldProgress:
    """Return the word of a node: the newest step that each rank printed, and seconds since then."""
    rows = [
        RankRow(first + place, 391, 100, 200, 0, "", printed=step, printed_ms=ago_s * 1000)
        for place, (step, ago_s) in enumerate(printed)
    ]
    return ToldProgress(f"n{first}", 1, told_s * _S, pack_ranks("j-1", 1, rows))


def test_ranks_that_all_print_steps_are_named_together() -> None:
    told = [_told(0, (391, 1), (390, 4)), _told(2, (391, 0), (391, 1))]
    assert printed_steps(told, 100 * _S) == "ranks 0-3 print steps"


def test_a_rank_that_stands_still_beside_others_is_named_with_both_newest_steps() -> None:
    told = [_told(0, (391, 1), (120, 31), (390, 1))]
    assert printed_steps(told, 100 * _S) == (
        "ranks 0,2 print steps, the newest is 391; rank 1 has printed none for 31 s, the newest is"
        " 120"
    )
    # The job's step is told beside it, and is newer than what a node told seconds ago.
    assert "print steps, the newest is 397; rank 1" in printed_steps(told, 100 * _S, 397)


def test_that_one_rank_prints_steps_is_told_as_enough() -> None:
    told = [_told(0, (391, 1), (None, 0), (None, 0))]
    assert printed_steps(told, 100 * _S, 397) == "rank 0 prints steps, which is enough"


def test_a_rank_of_which_its_node_tells_nothing_any_more_is_late() -> None:
    told = [_told(0, (391, 1)), _told(1, (120, 2), told_s=60)]
    assert "rank 1 has printed none for 42 s" in printed_steps(told, 100 * _S)


def test_where_no_rank_prints_steps_or_all_stand_still_nothing_is_said() -> None:
    assert printed_steps([], 0) == ""
    assert printed_steps([_told(0, (None, 0), (None, 0))], 100 * _S) == ""
    assert printed_steps([_told(0, (391, 90), (391, 91))], 100 * _S) == ""
