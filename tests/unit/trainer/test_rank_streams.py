"""Which streams go to the terminal, and which to files: torchrun's meaning."""

from pathlib import Path

import pytest

from everstep.launch.command_line.rank_streams import ERROR, OUT, StreamPlan, stream_plan

FOLDER = Path("/logs")


def places(plan: StreamPlan, local_rank: int, stream: int) -> tuple[bool, bool]:
    """Whether the terminal, and whether a file gets a stream."""
    return plan.to_terminal(local_rank, stream), plan.to_file(local_rank, stream)


@pytest.mark.parametrize(
    ("redirects", "tee", "out", "error"),
    [
        ("0", "0", (True, False), (True, False)),
        ("1", "0", (False, True), (True, False)),
        ("2", "0", (True, False), (False, True)),
        ("3", "0", (False, True), (False, True)),
        ("0", "1", (True, True), (True, False)),
        ("0", "3", (True, True), (True, True)),
        ("3", "1", (True, True), (False, True)),
        ("1:1", "0", (True, False), (True, False)),
        ("0:3,1:1", "0:2", (False, True), (True, True)),
    ],
)
def test_streams_of_local_rank_0(
    redirects: str, tee: str, out: tuple[bool, bool], error: tuple[bool, bool]
) -> None:
    plan = stream_plan(FOLDER, redirects, tee, "")
    assert (places(plan, 0, OUT), places(plan, 0, ERROR)) == (out, error)


def test_a_filter_of_ranks_concerns_the_terminal_alone() -> None:
    plan = stream_plan(FOLDER, "0", "3", "1,3")
    assert places(plan, 0, OUT) == (False, True)
    assert places(plan, 3, OUT) == (True, True)


def test_files_without_a_folder_need_one() -> None:
    assert stream_plan(None, "0:1", "0", "").needs_folder
    assert not stream_plan(None, "0:0", "0", "").needs_folder
    assert not stream_plan(FOLDER, "3", "0", "").needs_folder
