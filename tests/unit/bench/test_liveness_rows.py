"""Rows of the liveness benchmark: when what came of a fault is as wanted."""

import json
from collections.abc import Sequence

import pytest
from liveness_rows import HEAD, Round, Row


def _row(
    *rounds: tuple[float | None, int, int], verdict: str = "lost", target_s: float | None = 5.0
) -> Row:
    return Row(
        what="a fault",
        how="virtual time",
        verdict=verdict,
        target_s=target_s,
        rounds=[Round(*one) for one in rounds],
    )


@pytest.mark.parametrize(
    ("rounds", "met"),
    [
        ([(4.0, 0, 0), (5.0, 0, 0)], True),
        ([(4.0, 0, 0), (5.1, 0, 0)], False),
        ([(4.0, 0, 0), (None, 0, 0)], False),
        ([(4.0, 1, 0), (4.0, 0, 0)], False),
        ([(4.0, 0, 0), (4.0, 0, 1)], False),
        ([], False),
    ],
)
def test_a_row_is_met_when_every_round_is_in_time_and_harms_nobody(
    rounds: Sequence[tuple[float | None, int, int]], met: bool
) -> None:
    assert _row(*rounds).met is met


def test_a_fault_that_shall_come_to_nothing_is_met_when_nobody_is_harmed() -> None:
    assert _row((None, 0, 0), verdict="").met
    assert not _row((None, 1, 0), verdict="").met
    assert _row((40.0, 0, 0), target_s=None).met


def test_json_has_the_median_and_what_was_harmed_in_all_rounds() -> None:
    told = json.loads(json.dumps(_row((4.0, 1, 0), (5.0, 2, 1), (4.5, 0, 0)).as_json()))
    assert (told["value"], told["spread"], told["rounds"]) == (4.5, 1.0, 3)
    assert (told["false_losses"], told["false_restarts"], told["met"]) == (3, 1, False)
    nothing = _row((None, 0, 0), verdict="").as_json()
    assert (nothing["verdict"], nothing["value"], nothing["met"]) == ("none", None, True)


def test_the_table_has_a_cell_for_each_heading() -> None:
    assert len(_row((4.0, 0, 0)).cells()) == len(_row(verdict="").cells()) == len(HEAD)
