"""A controller that ends again and again: what it waits for ends all the same."""

from collections.abc import Sequence

import pytest

from everstep_common.judging.findings import Mode
from everstep_common.reports import JobOnNode, TcpAnswer
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.settings import Settings
from unit.core.test_decisions import S, Story

SETTINGS = Settings(mode=Mode.ENFORCE, stall_timeout_ns=60 * S)
AWAY_S = 3


class LoopingStory(Story):
    """A controller that lives for so many seconds, again and again, with nodes that answer it."""

    dead: frozenset[str] = frozenset()

    def live(self, seconds: float) -> None:
        """Start anew after some seconds without a controller, and run for a while."""
        self.now_ns += AWAY_S * S
        self.tell(events.ControllerStalled(AWAY_S * S), 0)
        self.tell(events.ControllerStarted("0.1.0"), 0)
        end_ns = self.now_ns + int(seconds * S)
        for node in [one for one in self.core.state.nodes if one not in self.dead]:
            jobs = [self.core.state.jobs[job] for job in self.core.state.nodes[node].jobs.ids]
            told = (
                JobOnNode(one.name, 1, launcher=True, job_id=one.id, planned_generation=1)
                for one in jobs
            )
            self.connect(node, jobs=tuple(told))
        while due := [(at, name) for name, at in self.core.state.timers.items() if at <= end_ns]:
            at_ns, name = min(due)
            self.now_ns = max(self.now_ns, at_ns)
            self._answer(self.tell(events.TimerDue(name), 0))
        self.now_ns = max(self.now_ns, end_ns)

    def _answer(self, asked: Sequence[actions.Action]) -> None:
        """Have all who are asked about a node say that nothing of it answers."""
        for one in asked:
            if isinstance(one, actions.ConfirmSilence):
                self.tell(events.PeerJudged(one.node, one.peer, one.id, False, TcpAnswer.SILENT))


@pytest.mark.parametrize("lives_s", [20, 50, 100])
def test_a_node_that_is_dead_is_lost(lives_s: int) -> None:
    story = LoopingStory(nodes=5, settings=SETTINGS)
    story.dead = frozenset({"n0"})
    lives = 0
    while story.state("n0") is not NodeState.LOST:
        story.live(lives_s)
        lives += 1
        assert lives * lives_s <= 2 * 120 + lives_s, "listened for longer than one start waits"
    assert {story.state(f"n{number}") for number in range(1, 5)} == {NodeState.HEALTHY}


@pytest.mark.parametrize("lives_s", [20, 50, 100])
def test_a_node_that_comes_back_within_each_life_is_not_lost(lives_s: int) -> None:
    story = LoopingStory(nodes=5, settings=SETTINGS)
    for _ in range(20):
        story.live(lives_s)
    assert {story.state(f"n{number}") for number in range(5)} == {NodeState.HEALTHY}


@pytest.mark.parametrize("lives_s", [20, 50, 100])
def test_a_job_whose_ranks_stand_still_is_shown_as_stalled(lives_s: int) -> None:
    story = LoopingStory(settings=SETTINGS)
    story.run()
    for step in range(1, 5):
        story.now_ns += S // 2
        story.progress(step)
    for _ in range(2 * 120 // lives_s + 1):
        story.live(lives_s)
    assert story.core.state.newest("j").state is JobState.STALLED


def test_a_recovery_goes_on_with_its_listening() -> None:
    story = LoopingStory(settings=SETTINGS)
    story.tell(events.RecoveryBegun("alice"))
    for _ in range(3):
        story.live(20)
    assert not story.core.state.halted


def test_a_start_long_after_another_one_waits_for_all_agents_anew() -> None:
    story = LoopingStory(nodes=5, settings=SETTINGS)
    story.live(1000)
    story.now_ns += 1000 * S
    story.tell(events.ControllerStarted("0.1.0"))
    expected = {node.liveness.silence.expected_until_ns for node in story.core.state.nodes.values()}
    assert expected == {story.now_ns + 120 * S}
