"""A job that ends, or is to stop, while the controller dies: it goes on from any prefix."""

import copy
from typing import Protocol

from everstep_common import reports
from everstep_common.reports import JobOnNode
from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.job import JobState
from unit.core.jobs.test_job_endings import LongStory

_Journal = list[tuple[events.Event, int]]


class Recorded(LongStory):
    """A story whose journal can be cut anywhere."""

    def __init__(self, nodes: int = 3) -> None:
        self.journal: _Journal = []
        super().__init__(nodes)

    def tell(self, event: events.Event, after_s: float = 0.1) -> list[actions.Action]:
        done = super().tell(event, after_s)
        self.journal.append((event, self.now_ns))
        return done

    def train(self, *steps: int) -> None:
        """Let steps be done that can be restored, all of it in events."""
        for step in steps:
            self.tell(
                events.JobProgressed(
                    job="j",
                    generation=self.job.generation.number,
                    first_step=step,
                    end_ns=(self.now_ns,),
                    stall_ns=(0,),
                    recoverable_step=step,
                )
            )

    def back(self, *nodes: str) -> None:
        """Let a controller start again, and agents connect that know the job."""
        self.tell(events.ControllerStarted("0.1.0"))
        for node in nodes:
            generation = self.job.generation.number if node in self.job.generation.members else 0
            self.connect(node, jobs=(JobOnNode("j", generation, True),))

    def finish(self, node: str) -> list[actions.Action]:
        done = events.Reported(
            self.origin(node),
            self.now_ns,
            reports.GenerationFinished(self.job.generation.number),
            "j",
        )
        return self.tell(done)


def _lasting(action: actions.Action) -> bool:
    return not isinstance(action, actions.Announce | actions.HoldLauncher)


class HasJournal(Protocol):
    """A story that keeps its events; ``core`` has taken them all."""

    journal: _Journal
    core: Core


def from_every_prefix(story: HasJournal) -> None:
    """A controller that died after any event ends where one does that never died."""
    for cut in range(len(story.journal)):
        core = Core()
        for event, now_ns in story.journal[:cut]:
            core.handle(event, now_ns)
        resumed = Core(copy.deepcopy(core.state))
        for event, now_ns in story.journal[cut:]:
            called_for = resumed.handle(event, now_ns)
            due = {action.id for action in resumed.due(now_ns)}
            missing = [a for a in called_for if _lasting(a) and a.id not in due]
            assert not missing, (event, missing)
        assert resumed.state.jobs == story.core.state.jobs


def _started(done: list[actions.Action]) -> list[str]:
    return [order.node for order in done if isinstance(order, actions.StartGeneration)]


def test_a_node_that_is_lost_after_its_ranks_have_ended_does_not_bring_the_job_back() -> None:
    story = Recorded()
    story.run()
    story.train(1, 2)
    story.finish("n0")
    story.tell(events.NodeDisconnected("n0"))
    story.finish("n1")
    story.tell(events.TimerDue("silence/n0"), after_s=20)
    assert (story.job.state, story.job.ending.succeeded) == (JobState.ENDED, True)
    from_every_prefix(story)


def test_a_rank_that_dies_after_other_nodes_have_ended_well_is_a_fault_of_all() -> None:
    story = Recorded()
    story.run()
    story.train(1, 2)
    story.finish("n0")
    story.exit_rank("n1")
    assert story.job.state is JobState.STOPPING
    story.stop_all()
    assert sorted(_started(story.restore(1, 2))) == ["n0", "n1"]
    for node in ("n0", "n1"):
        story.finish(node)
    assert (story.job.state, story.job.ending.succeeded) == (JobState.ENDED, True)
    from_every_prefix(story)


def test_a_node_that_is_lost_before_the_others_have_ended_is_replaced() -> None:
    story = Recorded()
    story.run()
    story.train(1, 2)
    story.join("n2")
    story.finish("n1")
    story.lose("n0")
    story.stop_all()
    assert _started(story.restore(1, 2)) == ["n2", "n1"]
    from_every_prefix(story)


def test_a_stop_that_was_ordered_before_the_controller_died_is_ordered_again() -> None:
    story = Recorded()
    story.run()
    story.train(1, 2)
    story.exit_rank("n1")
    story.back("n0", "n1")
    due = [a.node for a in story.core.due(story.now_ns) if isinstance(a, actions.StopGeneration)]
    assert due == ["n0", "n1"]
    story.stop_all()
    assert story.job.state is JobState.REPLANNING
    assert sorted(_started(story.restore(1, 2))) == ["n0", "n1"]
    from_every_prefix(story)


def test_a_member_that_vanished_while_the_controller_was_away_is_not_waited_for() -> None:
    story = Recorded()
    story.run()
    story.train(1, 2)
    story.join("n2")
    story.exit_rank("n1")
    story.back("n1", "n2")
    story.tell(
        events.Reported(story.origin("n1"), story.now_ns, reports.GenerationStopped(1, 4321), "j")
    )
    story.tell(events.TimerDue("silence/n0"), after_s=121)
    assert story.job.state is JobState.REPLANNING
    assert _started(story.restore(1, 2)) == ["n2", "n1"]
    from_every_prefix(story)


def test_a_step_that_was_chosen_and_never_acted_on_is_ordered_when_the_controller_is_back() -> None:
    story = Recorded()
    story.run()
    story.train(1, 2)
    story.crash()
    story.restore(1, 2)
    story.back("n0", "n1")
    assert sorted(_started(story.core.due(story.now_ns))) == ["n0", "n1"]
    from_every_prefix(story)
