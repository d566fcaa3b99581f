import pytest

from everstep_common import job_limits


@pytest.mark.parametrize(("least", "most"), [(1, 1), (1, 4), (3, 4)])
def test_a_job_has_some_nodes(least: int, most: int) -> None:
    assert job_limits.nodes_problem(least, most) is None


@pytest.mark.parametrize(("least", "most"), [(0, 0), (0, 4), (-1, 4), (5, 4)])
def test_other_numbers_of_nodes_are_named(least: int, most: int) -> None:
    assert f"--nnodes {least}:{most}" in (job_limits.nodes_problem(least, most) or "")


@pytest.mark.parametrize(("count", "good"), [(-1, False), (0, False), (1, True), (8, True)])
def test_a_node_has_a_process(count: int, good: bool) -> None:
    assert (job_limits.processes_problem(count) is None) is good


@pytest.mark.parametrize(
    ("replica", "good"), [(0, True), (1, True), (2, True), (3, False), (4, False), (-2, False)]
)
def test_both_ends_of_the_nodes_are_whole_copies_of_the_model(replica: int, good: bool) -> None:
    assert (job_limits.replica_problem(replica, 2, 4) is None) is good


def test_a_size_is_all_of_these() -> None:
    assert job_limits.size_problem(2, 4, 8, 2) is None
    for wrong in ((4, 2, 8, 2), (2, 4, 0, 2), (2, 4, 8, 3)):
        assert job_limits.size_problem(*wrong)


def test_a_place_for_the_state_has_a_name() -> None:
    assert job_limits.storage_problem("/data") is None
    assert job_limits.storage_problem("")


def test_a_range_does_not_end_before_it_begins() -> None:
    assert job_limits.range_problem(3, 3) is None
    assert "3 to 2" in (job_limits.range_problem(3, 2) or "")
