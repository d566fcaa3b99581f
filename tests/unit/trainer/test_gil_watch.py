"""A rank without torch's recorder: its Python is heard of, goes silent, and is seen to wait."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.launch.inspection.look_service import rank_asked
from everstep.launch.inspection.rank_pages import RankFacts
from everstep.launch.inspection.rank_watch import RankWatch
from everstep.rank.interpreter import everstep_rank_page as page
from everstep.rank.interpreter.everstep_frontier_watch import FrontierWatch
from everstep.rank.interpreter.everstep_gil_watch import GilWatch
from unit.trainer.test_gil_wait import show

_S = 10**9


class _World:
    """A launcher with one rank, whose thread 78 of process 77 watches the GIL."""

    def __init__(self, proc: Path) -> None:
        self.now_ns, self.proc = 1000 * _S, proc
        self.watch = RankWatch(lambda _: None, lambda: {0: 70}, lambda: self.now_ns, proc=proc)
        self.watch.begin(1, [0], 1)
        self.page = page.Page(self.watch.environment(0), page.GIL_PID)
        self.page.words[page.GIL_PID], self.page.words[page.GIL_THREAD] = 77, 78
        self.gil = GilWatch(self.page)

    def live(self, seconds: int, *, heard: bool, waits_per_s: int = 2) -> RankFacts:
        for _ in range(seconds):
            self.now_ns += _S
            if heard:
                self.gil.note(self.now_ns)
            show(self.proc, self.now_ns // _S * waits_per_s, "202")
            self.watch.advance({})
        return self.watch.facts(0)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[_World]:
    made = _World(tmp_path)
    yield made
    made.watch.end()


def test_a_rank_whose_python_runs_is_heard_of(world: _World) -> None:
    facts = world.live(5, heard=True)
    assert (facts.watch_process, facts.watch_thread) == (77, 78)
    assert (facts.unheard_ns, facts.waits_for_gil) == (0, False)
    asked = rank_asked(0, 70, None, facts)
    assert (asked.watch_process, asked.waits_for_gil, asked.unheard_ms) == (77, False, 0)
    assert facts.frontier is None, "how far its collectives are it does not tell"


def test_one_that_goes_silent_and_waits_for_the_gil_is_seen_behind_a_shell_script(
    world: _World,
) -> None:
    world.live(5, heard=True)
    facts = world.live(4, heard=False, waits_per_s=180)
    assert facts.waits_for_gil
    assert rank_asked(0, 70, None, facts).unheard_ms == 4000


def test_one_that_gets_no_processor_goes_silent_too_and_holds_nothing(world: _World) -> None:
    world.live(5, heard=True)
    facts = world.live(9, heard=False, waits_per_s=0)
    assert (facts.unheard_ns, facts.waits_for_gil) == (9 * _S, False)


def test_where_the_frontier_is_watched_that_tells_and_the_other_watch_ends(world: _World) -> None:
    world.live(2, heard=True)
    frontier = FrontierWatch(page.Page(world.watch.environment(0), page.WATCH_PID), lambda: (1, 1))
    assert world.gil.note(world.now_ns)
    frontier.begin()
    frontier.read_once(world.now_ns)
    thread = world.watch.facts(0).watch_thread
    assert thread not in (0, 78)
    assert not world.gil.note(world.now_ns)
    assert world.watch.facts(0).watch_thread == thread


def test_another_process_of_the_rank_does_not_take_its_place(world: _World) -> None:
    world.page.words[page.GIL_PID] = 1  # which lives as long as this machine
    with pytest.raises(page.NoPageError):
        page.Page(world.watch.environment(0), page.GIL_PID)
    world.page.words[page.GIL_PID] = 2**22  # a helper that the script began with, and is gone
    assert page.Page(world.watch.environment(0), page.GIL_PID).usable
