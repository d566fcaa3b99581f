"""Random claims, restarts, foreign hands and failures around one driver: what always holds."""

import random

import pytest

from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.nodes.isolation_differences import wanted_isolation
from unit.core.nodes.scheduler_world import DRIVER, SchedulerStory

NODES = 4
STEPS = 60


class RandomWorld(SchedulerStory):
    """Does something at random, and judges every call of the driver."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        super().__init__(NODES)
        # Nodes that others have had their hands on: there, no more is promised than to leave alone.
        self.touched: set[str] = set()
        # One in some worlds that the scheduler does not have.
        self.scheduler.unmanaged = {"n3"} if self.rng.random() < 0.3 else set()

    def random_step(self) -> None:
        name = f"n{self.rng.randrange(NODES)}"
        match self.rng.choice(("word", "find", "drain", "resume", "break", "answer", "crash")):
            case "word":
                self.operator(name, self.rng.choice(("isolate", "drain", "release")))
            case "find":
                self.find(name)
            case "drain":
                self.scheduler.drain(name)
                self.touched.add(name)
            case "resume":
                self.scheduler.resume(name)
                self.touched.add(name)
            case "break":
                self.scheduler.broken = self.rng.choice(("", "", "away"))
            case "answer":
                self.judged_answer()
            case "crash":
                self.half_done()
                self.restart()

    def judged_answer(self) -> None:
        """Answer all calls, or let time pass; no hold of others may be gone afterwards."""
        before = {name: hold for name, hold in self.scheduler.holds.items() if not hold.ours}
        self.answer()
        if self.rng.random() < 0.5:
            self.look()
        self.run_retries(self.rng.choice((1, 200)))
        for name, hold in before.items():
            assert self.scheduler.holds.get(name) == hold

    def half_done(self) -> None:
        """Let the scheduler do a part of what it was asked for; nobody hears of it."""
        for call in self.calls:
            if isinstance(call, actions.ApplyIsolation):
                for one in call.wanted[: self.rng.randrange(len(call.wanted) + 1)]:
                    self.scheduler.apply(one)

    def settle(self) -> None:
        """End all failures, and let everything be done that is due."""
        self.scheduler.broken = ""
        self.answer()
        self.look()
        self.run_retries(300)
        self.look()
        self.answer()


@pytest.mark.parametrize("seed", range(60))
def test_the_scheduler_converges_to_the_claims_where_nobody_else_interferes(seed: int) -> None:
    world = RandomWorld(seed)
    for _ in range(STEPS):
        world.random_step()
    world.settle()
    for node in world.core.state.nodes.values():
        hold = world.scheduler.holds.get(node.name)
        wanted = wanted_isolation(node)
        if node.name in world.scheduler.unmanaged:
            assert hold is None or not hold.ours
        elif node.name not in world.touched:
            assert (hold is not None) == wanted.withheld
            assert hold is None or (hold.ours and hold.reason == wanted.reason)
        elif hold is not None and hold.ours:
            assert wanted.withheld
        assert (node.claim_of("scheduler") is not None) == (hold is not None and not hold.ours)


@pytest.mark.parametrize("seed", range(20))
def test_once_all_is_as_it_is_wanted_neither_looks_nor_restarts_lead_to_a_call(seed: int) -> None:
    world = RandomWorld(seed)
    for _ in range(STEPS):
        world.random_step()
    world.settle()
    asked = len(world.scheduler.applied)
    # Nodes that it does not have are asked for once more at each start.
    for _ in range(3):
        world.look()
        world.restart()
        world.answer()
    assert len(world.scheduler.applied) == asked
    assert world.calls == []


@pytest.mark.parametrize("seed", range(20))
def test_a_restart_at_any_prefix_of_the_journal_loses_no_call(seed: int) -> None:
    """Every call that an event led to is due after it, or a reading that leads to it again is."""
    world = RandomWorld(seed)
    for _ in range(STEPS):
        world.random_step()
    core = Core()
    calls = 0
    for event, now_ns in world.journal:
        called_for = core.handle(event, now_ns)
        due = {action.id: action for action in core.due(now_ns)}
        for action in called_for:
            if isinstance(action, actions.ApplyIsolation | actions.ReadIsolation):
                calls += 1
                again = due[action.id]
                if isinstance(action, actions.ApplyIsolation):
                    assert isinstance(again, actions.ApplyIsolation)
                    assert set(action.wanted) <= set(again.wanted)
    assert calls > 1


@pytest.mark.parametrize("seed", range(20))
def test_from_any_prefix_a_restarted_controller_brings_the_scheduler_to_the_claims(
    seed: int,
) -> None:
    """The scheduler has done nothing, or everything, of what was asked when the process died."""
    world = SchedulerStory(NODES)
    rng = random.Random(seed)
    for _ in range(12):
        name = f"n{rng.randrange(NODES)}"
        world.operator(name, rng.choice(("isolate", "drain", "release")))
        if rng.random() < 0.5:
            world.answer()
    for cut in range(3 + NODES * 2, len(world.journal) + 1):
        for answered in (False, True):
            again = _replayed(world.journal[:cut], answered=answered)
            again.restart()
            again.answer()
            for node in again.core.state.nodes.values():
                assert (node.name in again.scheduler.holds) == wanted_isolation(node).withheld


def _replayed(journal: list[tuple[events.Event, int]], *, answered: bool) -> SchedulerStory:
    """Return a story at the end of a journal, whose last calls were done or not."""
    story = SchedulerStory(0)
    story.journal, story.core, story.calls = [], Core(), []
    asked: list[actions.ApplyIsolation] = []
    for event, now_ns in journal:
        if isinstance(event, events.DriverReported):
            for result in event.results:
                story.scheduler.apply(result.wanted)
            asked = []
        done = story.core.handle(event, now_ns)
        asked += [one for one in done if isinstance(one, actions.ApplyIsolation)]
        story.journal.append((event, now_ns))
        story.now_ns = now_ns
    for call in asked if answered else ():
        assert call.driver == DRIVER
        for one in call.wanted:
            story.scheduler.apply(one)
    return story
