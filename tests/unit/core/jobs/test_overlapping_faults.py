"""A fault that befalls a job while it recovers from another one is an incident of its own."""

import pytest

from everstep_common import reports
from everstep_common.judging.findings import Mode
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.settings import Settings
from everstep_controller.journal.codec import decode_state, encode
from unit.core.recovery.test_blame import Incidents
from unit.core.test_decisions import S


class _Recovering(Incidents):
    """A job on n0 and n1, with spares, that a rank on n0 has died of at step 20."""

    def __init__(self) -> None:
        super().__init__(nodes=5, settings=Settings(mode=Mode.ENFORCE))
        self.run()
        self.join("n2")
        self.join("n3")
        for step in range(1, 21):
            self.progress(step)
        self.die("n0", "killed")

    def next_generation(self, *steps: int) -> None:
        """Stop what runs, and make these steps in the next generation."""
        self.stop_all()
        if self.job.state is JobState.BACKING_OFF:
            self.tell(events.TimerDue(f"backoff/{self.job.id}"), after_s=5)
        self.choose(None)
        for node in self.job.generation.members:
            phase = reports.PhaseReached(self.job.generation.number, reports.Phase.STARTED)
            self.tell(events.Reported(self.origin(node), self.now_ns, phase, "j"))
        for step in steps:
            self.progress(step)
        assert self.job.state is (JobState.RUNNING if steps else JobState.STARTING)

    def told(self) -> list[tuple[str, str, bool]]:
        """Return cause, node and end of each incident."""
        return [(one.cause, one.node, bool(one.over_ns)) for one in self.incidents]

    def leave(self, node: str) -> list[actions.Action]:
        left = reports.LauncherLeft("its process ended", by_user=False)
        return self.tell(events.Reported(self.origin(node), self.now_ns, left, "j"))


_FIRST = ("process", "n0", True)


def test_a_node_that_is_lost_after_a_rank_died_elsewhere_is_an_incident_of_its_own() -> None:
    story = _Recovering()
    story.lose("n1")
    assert story.told() == [_FIRST, ("node", "n1", False)]
    first, second = story.incidents
    assert (first.over_ns, second.step_before) == (second.onset_ns, 20)
    assert "rank 0 on n0" in first.message
    assert "n1 went away" in second.message


def test_the_time_from_there_on_is_that_of_the_second_incident() -> None:
    story = _Recovering()
    story.lose("n1")
    story.stop_all()
    story.choose(None)
    story.now_ns += 10 * S
    totals = story.job.ledger.totals(story.now_ns, story.incidents[1].id)
    assert sum(totals.values()) > 10 * S


def test_a_node_that_fell_silent_before_the_rank_died_is_why_it_died() -> None:
    story = Incidents(nodes=4)
    story.run()
    story.die("n0", "killed", ago_ns=-S)
    story.lose("n1")
    assert [(one.cause, one.node) for one in story.incidents] == [("node", "n1")]


def test_what_a_rank_died_of_may_be_the_loss_of_a_node_that_is_noticed_late() -> None:
    story = Incidents(nodes=4)
    story.run()
    story.die("n0", "exception", exception="RuntimeError: unheard of")
    story.lose("n1")
    assert [(one.cause, one.node) for one in story.incidents] == [("node", "n1")]


def test_what_only_follows_is_named_by_its_cause() -> None:
    story = Incidents(nodes=4)
    story.run()
    story.die("n0", "collective")
    story.lose("n1")
    assert [(one.cause, one.node) for one in story.incidents] == [("node", "n1")]


def test_several_nodes_that_are_lost_together_are_one_incident() -> None:
    story = _Recovering()
    story.lose("n1")
    story.lose("n0")
    assert len(story.incidents) == 2


def test_a_rank_that_is_killed_while_lost_steps_are_made_again_is_another_incident() -> None:
    story = _Recovering()
    story.next_generation(10, 11)
    story.die("n1", "killed", step=11)
    assert story.told() == [_FIRST, ("process", "n1", False)]
    assert story.incidents[1].step_before == 20


def test_what_dies_of_the_same_at_the_same_step_again_is_the_same_incident() -> None:
    story = _Recovering()
    story.next_generation(*range(10, 21))
    story.die("n0", "killed", step=20)
    assert story.told() == [("process", "n0", False)]


def test_what_dies_before_its_first_step_may_come_of_the_same() -> None:
    story = _Recovering()
    story.next_generation()
    story.die("n1", "exception", exception="RuntimeError: bind failed")
    assert story.told() == [("process", "n0", False)]


@pytest.mark.parametrize("steps", [(), (10,)], ids=["before its first step", "while it steps"])
def test_a_node_that_is_lost_in_the_next_generation_is_another_incident(
    steps: tuple[int, ...],
) -> None:
    story = _Recovering()
    story.next_generation(*steps)
    story.lose("n1")
    assert story.told() == [_FIRST, ("node", "n1", False)]


def test_the_node_of_the_first_fault_that_is_lost_later_explains_it() -> None:
    story = _Recovering()
    story.next_generation(10)
    story.lose("n0")
    assert story.told() == [("node", "n0", False)]


def test_a_launcher_that_ends_elsewhere_while_the_next_generation_steps_is_another() -> None:
    story = _Recovering()
    story.next_generation(10)
    story.leave("n1")
    assert story.told() == [_FIRST, ("launcher", "n1", False)]


def test_how_generations_ended_is_not_forgotten_by_the_second_incident() -> None:
    story = _Recovering()
    story.next_generation(10, 11)
    story.die("n1", "exception", exception="ValueError: bad batch", step=11)
    story.next_generation(10, 11)
    story.die("n0", "exception", exception="ValueError: bad batch", step=11)
    story.stop_all()
    assert story.job.state is JobState.ENDED, story.job.reason
    assert "the same as generation 2" in story.job.reason
    assert len(story.incidents) == 2


def test_both_are_over_at_a_step_that_is_new() -> None:
    story = _Recovering()
    story.next_generation(10, 11)
    story.die("n1", "killed", step=11)
    story.next_generation(10, 20)
    assert story.open_incident is not None
    story.progress(21)
    assert story.open_incident is None


def test_an_incident_of_an_older_version_takes_all_faults() -> None:
    story = _Recovering()
    story.incidents[0].generation = 0
    again = decode_state(encode(story.core.state))
    assert again == story.core.state
    story.next_generation(10, 11)
    story.die("n1", "killed", step=11)
    assert len(story.incidents) == 1
