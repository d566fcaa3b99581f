"""What a script declares of its progress, as its launcher and its agent see it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from everstep.launch.inspection.rank_pages import RankFacts, RankPages
from everstep.rank.declared import DeclaredProgress
from everstep.rank.interpreter import everstep_rank_page as page
from everstep.run import Run
from everstep_common.clock import boot_ns
from everstep_common.compute_time import seconds_between, steps_between
from everstep_common.rank_messages import Paused

_NOW_NS = 10**18


@dataclass
class Rank:
    """A rank with a page, and what it told the agent."""

    pages: RankPages
    said: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        mapped = page.Page(self.pages.environment(3), page.SDK_PID)
        self.declared = DeclaredProgress(mapped, self.said.append)

    def facts(self) -> RankFacts:
        return self.pages.read(3, _NOW_NS)

    def paused(self) -> list[str]:
        return [one.name for one in self.said if isinstance(one, Paused)]


@pytest.fixture
def rank() -> Iterator[Rank]:
    pages = RankPages([2, 3])
    yield Rank(pages)
    pages.close()


def test_steps_and_phases_are_in_the_page_of_the_rank(rank: Rank) -> None:
    assert (rank.facts().step, rank.facts().phase) == (None, "")
    rank.declared.complete_step(0, 5)
    rank.declared.enter_phase("forward")
    facts = rank.facts()
    assert (facts.step, facts.step_at_ns, facts.phase) == (0, 5, "forward")
    assert facts.shown == "forward"
    assert rank.pages.read(2, _NOW_NS) == RankFacts()


def test_own_work_is_a_step_without_the_waiting_in_it(rank: Rank) -> None:
    declared, began_ns = rank.declared, boot_ns()
    declared.complete_step(0, began_ns)
    with declared.waiting(), declared.waiting():
        pass
    waited_ns = boot_ns() - began_ns
    declared.complete_step(1, began_ns + 5 * 10**9)
    own = rank.facts().own
    assert steps_between(0, own) == 1
    assert 5 - waited_ns / 1e9 - 1e-6 <= seconds_between(0, own) < 5


def test_a_step_without_a_wait_or_with_a_pause_tells_no_own_work(rank: Rank) -> None:
    declared, began_ns = rank.declared, boot_ns()
    declared.complete_step(0, began_ns)
    declared.complete_step(1, began_ns + 10**9)
    with declared.waiting(), declared.pause("evaluation"):
        pass
    declared.complete_step(2, began_ns + 2 * 10**9)
    assert rank.facts().own == 0
    with declared.waiting():
        declared.complete_step(3, began_ns + 3 * 10**9)
    assert rank.facts().own == 0


def test_a_role_is_in_the_page_of_the_rank(rank: Rank) -> None:
    rank.declared.name_role("stage 3")
    assert rank.facts().role == "stage 3"
    assert rank.pages.read(2, _NOW_NS).role == ""


def test_phases_beyond_the_fifteenth_share_a_place(rank: Rank) -> None:
    for number in range(20):
        rank.declared.enter_phase(f"phase-{number}")
    assert rank.facts().phase == "phase-19"
    rank.declared.enter_phase("phase-3")
    assert rank.facts().phase == "phase-3"


def test_a_pause_is_shown_and_told_and_ends_with_its_block(rank: Rank) -> None:
    with rank.declared.pause("evaluation"):
        assert rank.facts().shown == "pause: evaluation"
        with rank.declared.pause("save"):
            assert rank.facts().pause == "save"
        assert rank.facts().pause == "evaluation"
    assert rank.facts().pause == ""
    assert rank.paused() == ["evaluation", "save", "evaluation", ""]


def test_a_pause_ends_where_its_block_fails(rank: Rank) -> None:
    with pytest.raises(ValueError, match="bad data"), rank.declared.pause("evaluation"):
        raise ValueError("bad data")
    assert (rank.facts().pause, rank.paused()[-1]) == ("", "")


def test_names_are_cut(rank: Rank) -> None:
    with rank.declared.pause("ä" * 100):
        assert rank.facts().shown.startswith("pause: ää")
        assert len(rank.facts().shown) <= 40
    rank.declared.enter_phase("f" * 100)
    assert rank.facts().phase == "f" * 40


def test_a_forked_child_declares_nothing_of_its_parents(rank: Rank) -> None:
    rank.declared.complete_step(7, 5)
    child = os.fork()
    if child == 0:
        rank.declared.complete_step(8, 6)
        rank.declared.enter_phase("child")
        with rank.declared.pause("child"):
            os._exit(len(rank.said))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (rank.facts().step, rank.facts().shown) == (7, "")


def test_outside_a_job_they_do_nothing() -> None:
    run = Run(None, None, {})
    run.phase("forward")
    with run.pause("evaluation"), run.pause("evaluation"):
        run.step(3)
