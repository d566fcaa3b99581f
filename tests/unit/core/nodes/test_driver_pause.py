"""A pause of drivers: no scheduler is told anything, and then of what differs, once."""

import random

import pytest

from everstep_controller.core import actions, events
from everstep_controller.core.nodes.driver_pause import DriversPaused, DriversResumed, findings
from everstep_controller.core.nodes.isolation_differences import wanted_isolation
from everstep_controller.core.nodes.isolation_view import isolation_sentences, waiting_of
from unit.core.nodes.scheduler_world import DRIVER, SchedulerStory


class PausedStory(SchedulerStory):
    """A scheduler of which an operator may have nobody tell it anything."""

    def pause(self) -> None:
        self.tell(DriversPaused("ops", "Slurm is upgraded"))

    def resume(self) -> None:
        self.tell(DriversResumed("ops"))
        self.answer()

    def _note(self, done: list[actions.Action]) -> None:
        super()._note(done)
        for call in (one for one in done if isinstance(one, actions.ApplyIsolation)):
            assert not self.core.state.drivers_paused
            assert not any(self.record.nodes[one.node].foreign for one in call.wanted)


def test_a_paused_driver_is_told_nothing_and_then_what_differs() -> None:
    story = PausedStory(nodes=4)
    story.operator("n0", "isolate")
    story.operator("n1", "isolate")
    story.answer()
    asked = len(story.scheduler.applied)
    story.pause()
    story.operator("n0", "release")
    story.find("n2")
    story.operator("n3", "isolate")
    story.operator("n3", "release")
    assert (story.calls, len(story.scheduler.applied)) == ([], asked)
    assert not story.node("n2").usable
    story.look()
    story.answer()
    assert waiting_of(story.core.state, story.record) == ["n0", "n2"]
    story.resume()
    assert story.held() == {"n1": True, "n2": True}
    assert sorted(one.node for one in story.scheduler.applied[asked:]) == ["n0", "n2"]
    assert waiting_of(story.core.state, story.record) == []


def test_it_is_said_of_the_node_and_of_the_fleet_and_of_no_other_node() -> None:
    story = PausedStory()
    story.pause()
    story.operator("n0", "isolate")
    (said,) = isolation_sentences(story.core.state, "n0")
    assert said == (
        "driver slurm is not told that it is isolated, for drivers are paused (ops: Slurm is "
        "upgraded); to tell it: everstep resume --drivers"
    )
    assert list(isolation_sentences(story.core.state, "n1")) == []
    (found,) = findings(story.core.state)
    assert found.finding.evidence == "1 node would be told of now"
    assert "Slurm is upgraded" in found.finding.message
    story.resume()
    assert list(findings(story.core.state)) == []
    assert list(isolation_sentences(story.core.state, "n0")) == []


def test_a_pause_survives_a_restart_and_readings_go_on() -> None:
    story = PausedStory()
    story.operator("n0", "isolate")
    story.pause()
    story.calls.clear()
    story.restart()
    assert [type(call) for call in story.calls] == [actions.ReadIsolation]
    story.answer()
    assert story.held() == {}
    story.scheduler.drain("n1")
    story.look()
    assert story.owners("n1") == ["scheduler"]
    story.resume()
    assert story.held() == {"n0": True, "n1": False}


def test_a_call_that_was_under_way_ends_and_is_not_made_twice() -> None:
    story = PausedStory()
    story.operator("n0", "isolate")
    story.pause()
    story.answer()
    assert story.held() == {"n0": True}
    story.resume()
    assert len(story.scheduler.applied) == 1


def test_whoever_pauses_twice_changes_the_reason_and_whoever_resumes_twice_nothing() -> None:
    story = PausedStory()
    story.pause()
    since_ns = story.core.state.drivers_paused_ns
    story.tell(DriversPaused("ann", ""))
    assert (story.core.state.drivers_paused, story.core.state.drivers_paused_ns) == (
        "ann",
        since_ns,
    )
    story.resume()
    readings = story.readings
    story.resume()
    assert story.readings == readings


class Disorder:
    """Operators, others at the scheduler and restarts, in any order; calls are answered late."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.story = PausedStory(nodes=4)

    def happen(self) -> None:
        """Have one thing happen, and perhaps what waits be answered."""
        story, name = self.story, f"n{self.rng.randrange(4)}"
        word = self.rng.choice((*_ORDERS, *_AT_SCHEDULER, "pause", "resume", "look", "restart"))
        if word in _ORDERS:
            story.operator(name, word)
        elif word in _AT_SCHEDULER:
            _AT_SCHEDULER[word](story, name)
        elif word == "resume":
            story.tell(DriversResumed("ops"))
        else:
            {"pause": story.pause, "look": story.look, "restart": story.restart}[word]()
        if story.core.state.drivers_paused:  # what a worker has not begun is dropped
            story.calls = [one for one in story.calls if isinstance(one, actions.ReadIsolation)]
        if self.rng.random() < 0.7:
            story.answer()

    def settle(self) -> None:
        """Have others leave the scheduler alone, and drivers told again."""
        for name in list(self.story.scheduler.holds):
            _give_back(self.story, name)
        self.story.resume()
        self.story.look()
        self.story.answer()


def _give_back(story: SchedulerStory, name: str) -> None:
    hold = story.scheduler.holds.get(name)
    if hold is not None and not hold.ours:
        story.scheduler.resume(name)


_ORDERS = ("isolate", "release")
_AT_SCHEDULER = {
    "drain": lambda story, name: story.scheduler.drain(name),
    "give back": _give_back,
}


@pytest.mark.parametrize("seed", range(20))
def test_while_paused_nothing_is_applied_whatever_happens(seed: int) -> None:
    disorder = Disorder(seed)
    story = disorder.story
    for _ in range(60):
        applied, was_paused = len(story.scheduler.applied), bool(story.core.state.drivers_paused)
        disorder.happen()
        if was_paused and story.core.state.drivers_paused:
            assert len(story.scheduler.applied) == applied


@pytest.mark.parametrize("seed", range(20))
def test_after_any_disorder_schedulers_are_as_claims_say_and_nothing_is_asked_again(
    seed: int,
) -> None:
    disorder = Disorder(seed)
    story = disorder.story
    for _ in range(60):
        disorder.happen()
    disorder.settle()
    asked = len(story.scheduler.applied)
    for name, node in story.core.state.nodes.items():
        known = story.record.nodes.get(name)
        if known is None or not known.overridden:
            assert (name in story.scheduler.holds) == wanted_isolation(node).withheld, name
    story.look()
    story.tell(events.SettingsApplied(story.core.state.settings, (DRIVER,)))
    story.answer()
    assert len(story.scheduler.applied) == asked
