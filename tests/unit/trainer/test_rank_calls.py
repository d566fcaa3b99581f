"""What a rank notes of its sends and receives, and what a reader makes of its page."""

import os
import struct
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.launch.inspection.rank_pages import RankPages
from everstep.launch.inspection.sources.rank_calls import calls_in, noted_calls
from everstep.rank.interpreter import everstep_rank_page as page
from everstep.rank.interpreter.everstep_rank_calls import RankCalls, wrap

_MEMBERS = [4, 6, 8, 10]


class Rank:
    """A rank with a page, in a group of ranks 4, 6, 8 and 10; each call takes a nanosecond."""

    def __init__(self) -> None:
        self.pages = RankPages([6])
        self.now_ns = 1000
        self.calls = RankCalls(
            page.Page(self.pages.environment(6), page.WATCH_PID), lambda _: _MEMBERS, self._tick
        )

    def _tick(self) -> int:
        self.now_ns += 1
        return self.now_ns

    def labels(self) -> list[str]:
        return [one.label for one in noted_calls(self.pages.place(6)).calls]


@dataclass
class Group:
    """What torch's ProcessGroup does: it takes tensors, the other end within the group, a tag."""

    sent: int = 0

    def send(self, tensors: list[object], end: int, tag: int) -> str:
        """Send."""
        self.sent += 1
        return f"to {end} with {tag}"

    def recv_anysource(self, tensors: list[object], tag: int) -> str:
        """Receive."""
        return f"with {tag}"


def test_what_is_noted_is_read_with_ranks_of_the_job() -> None:
    rank = Rank()
    rank.calls.note(page.SEND, _MEMBERS, 2)
    rank.calls.note(page.RECV, _MEMBERS, 0)
    rank.calls.note(page.RECV_ANY, _MEMBERS, 0)
    told = noted_calls(rank.pages.place(6))
    assert [(one.at_ns, one.label) for one in told.calls] == [
        (1001, "send to rank 8"),
        (1002, "recv from rank 4"),
        (1003, "recv from any"),
    ]
    assert not told.cut


def test_only_the_newest_are_kept() -> None:
    rank = Rank()
    for number in range(page.CALLS_MAX + 3):
        rank.calls.note(page.SEND, _MEMBERS, number % 4)
    told = noted_calls(rank.pages.place(6))
    assert told.cut
    assert len(told.calls) == page.CALLS_MAX
    assert told.calls[0].at_ns == 1004
    assert [one.at_ns for one in told.calls] == sorted(one.at_ns for one in told.calls)


def test_a_forked_child_writes_nothing_into_its_parents_page() -> None:
    rank = Rank()
    if (child := os.fork()) == 0:
        rank.calls.note(page.SEND, _MEMBERS, 2)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert rank.labels() == []


def test_what_is_noted_is_called_as_before() -> None:
    rank = Rank()

    class Noting(Group):
        pass

    wrap(Noting, "send", page.SEND, lambda: rank.calls)
    wrap(Noting, "recv_anysource", page.RECV_ANY, lambda: rank.calls)
    group, tensor = Noting(), SimpleNamespace(is_cpu=True)
    assert group.send([tensor], 3, 7) == "to 3 with 7"
    assert group.recv_anysource([tensor], 5) == "with 5"
    # Of a GPU's, NCCL's recorder tells.
    group.send([SimpleNamespace(is_cpu=False)], 1, 0)
    assert rank.labels() == ["send to rank 10", "recv from any"]
    assert group.sent == 2


@pytest.mark.parametrize("tensors", [[], [None], None, [SimpleNamespace(is_cpu=True)]])
def test_what_cannot_be_noted_is_called_all_the_same(tensors: list[object]) -> None:
    rank = Rank()

    class Noting(Group):
        pass

    wrap(Noting, "send", page.SEND, lambda: rank.calls)
    assert Noting().send(tensors, 99, 1) == "to 99 with 1"
    assert rank.labels() == []


def test_a_rank_without_a_page_has_noted_nothing() -> None:
    assert noted_calls("").calls == ()
    assert noted_calls("/nowhere:0").calls == ()
    assert noted_calls("/proc/self/exe:x").calls == ()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=12), st.integers(-(2**63), 2**63 - 1))
def test_a_hostile_page_yields_calls_of_possible_ranks(words: list[int], count: int) -> None:
    content = bytearray(page.SPAN)
    struct.pack_into("=q", content, 8 * page.LAYOUT, page.MAGIC)
    struct.pack_into(f"={1 + len(words)}q", content, 8 * page.CALLS, count, *words)
    told = calls_in(bytes(content))
    assert len(told.calls) <= page.CALLS_MAX
    assert all(one.at_ns > 0 and len(one.label) < 40 for one in told.calls)
