"""Stack trees: what ranks have in common is told once, and who does something else stands out."""

from hypothesis import given
from hypothesis import strategies as st

from everstep_common.hangs.reports.rank_report import ProcessFacts, RankHangReport
from everstep_common.hangs.stack_tree import Branch, ranks_text, stack_tree


def _report(rank: int, *outermost_first: str) -> RankHangReport:
    return RankHangReport(rank=rank, process=ProcessFacts(python_stack=outermost_first[::-1]))


def test_the_rank_that_does_something_else_is_a_branch_of_its_own() -> None:
    waits = ("t.py:9 <module>", "t.py:5 step", "d.py:1 all_reduce")
    reports = [_report(rank, *waits) for rank in (0, 1, 3)]
    reports.append(_report(2, "t.py:9 <module>", "t.py:4 load"))
    assert stack_tree(reports) == (
        Branch(
            ("t.py:9 <module>",),
            (0, 1, 2, 3),
            (
                Branch(("t.py:5 step", "d.py:1 all_reduce"), (0, 1, 3)),
                Branch(("t.py:4 load",), (2,)),
            ),
        ),
    )


def test_a_stack_that_ends_where_others_go_on_is_counted_there() -> None:
    tree = stack_tree([_report(0, "a", "b"), _report(1, "a")])
    assert tree == (Branch(("a",), (0, 1), (Branch(("b",), (0,)),)),)


def test_ranks_without_a_stack_are_left_out() -> None:
    assert stack_tree([RankHangReport(rank=0)]) == ()


_FRAMES = st.lists(st.sampled_from("abc"), min_size=1, max_size=6)


@given(st.dictionaries(st.integers(0, 50), _FRAMES, max_size=20))
def test_each_stack_is_a_path_of_the_tree(stacks: dict[int, list[str]]) -> None:
    tree = stack_tree(_report(rank, *frames) for rank, frames in stacks.items())
    for rank, frames in stacks.items():
        assert _path(tree, rank) == frames


def _path(branches: tuple[Branch, ...], rank: int) -> list[str]:
    for branch in branches:
        if rank in branch.ranks:
            return [*branch.frames, *_path(branch.below, rank)]
    return []


def test_ranks_in_words() -> None:
    assert ranks_text([3]) == "rank 3"
    assert ranks_text([0, 1, 2, 4]) == "4 ranks: 0-2,4"
    scattered = [n * n for n in range(40)]
    told = ranks_text(scattered)
    assert told.startswith("40 ranks: 0-1,4,9")
    assert told.endswith(",…")
    assert len(told) < 80
