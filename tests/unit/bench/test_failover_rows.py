"""Rows of the failover benchmark: the share of rounds that a figure holds for, and its target."""

import pytest
from failover.rows import Samples, p95, rows_of


@pytest.mark.parametrize(("count", "rank"), [(1, 1), (2, 2), (10, 10), (20, 19), (100, 95)])
def test_of_so_many_rounds_so_many_are_within_the_figure(count: int, rank: int) -> None:
    assert p95([float(one) for one in range(count, 0, -1)]) == rank


def test_a_time_is_judged_by_its_share_and_told_with_its_median() -> None:
    told = Samples("killed", "s", [2.0, 3.0, 7.0], target=6.0)
    share, median = rows_of(told)
    assert (share.name, share.value, share.met) == ("killed, p95 of 3", 7.0, False)
    assert (share.target, share.spread) == ("≤ 6", 5.0)
    assert (median.name, median.value, median.met) == ("killed, median", 3.0, None)


def test_what_is_counted_is_told_as_a_sum() -> None:
    (row,) = rows_of(Samples("restarts", "jobs", [0, 1, 0], target=0, figure="sum"))
    assert (row.name, row.value, row.spread, row.met) == ("restarts", 1, 0.0, False)
    (row,) = rows_of(Samples("restarts", "jobs", [0, 0], target=0, figure="sum"))
    assert row.met


def test_no_round_is_no_success() -> None:
    (row,) = rows_of(Samples("killed", "s", []))
    assert not row.met
