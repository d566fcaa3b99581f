"""Ranks whose agent stays away move to a spare, at a step that they saved; or it says why not."""

from dataclasses import replace

import pytest

from everstep_common import reports
from everstep_common.judging.findings import Mode
from everstep_common.reports import JobOnNode, Storage
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import Cause, JobState, PlannedKind
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.planned import forecast, restarts
from everstep_controller.core.vault.absent_saving import AbsentSaving
from everstep_controller.journal.codec import decode_state, encode
from unit.core.jobs.test_unsaved_steps import HERE, SavingStory
from unit.core.test_decisions import S

ENFORCED = Settings(mode=Mode.ENFORCE, enforce=("StepsUnsaved",))


class MoveStory(SavingStory):
    """A job of two nodes with a folder and a spare, n2; the agent of n1 goes away."""

    def __init__(self, settings: Settings = ENFORCED, *, spare: bool = True) -> None:
        super().__init__(settings)
        if spare:
            self.join("n2")
        self.job.spec = replace(self.job.spec, storage=Storage("/ckpt"))
        self.steps(100, saved=True)

    def away(self, node: str = "n1") -> None:
        """Have an agent end, and its ranks go on for longer than people wait to be told."""
        self.tell(events.NodeDisconnected(node))
        self.steps(70, saved=False)

    def save(self) -> list[str]:
        """Have the newest step be stored, by ranks with an agent and without."""
        return self.recover(self.step)

    def recover(self, step: int) -> list[str]:
        self.recoverable = step
        done = self.tell(events.StepRecoverable("j", self.job.generation.number, step))
        return [one.reason for one in done if isinstance(one, actions.Announce)]

    def leave(self, step: int) -> list[actions.Action]:
        """Have the step of the move be saved, and the members stop that have an agent."""
        done = self.tell(events.StepRecoverable("j", 1, step))
        stopped = events.Reported(
            self.origin("n0"), self.now_ns, reports.GenerationStopped(1, 4321), "j"
        )
        self.tell(stopped)
        self.choose(step)
        return done

    def rule(self) -> str:
        (held,) = self.findings
        return held.finding.rule

    def planned(self) -> PlannedKind | None:
        return self.job.planned.kind if self.job.planned is not None else None

    def state_of_job(self) -> JobState:
        return self.job.state

    def boundary(self) -> int:
        """Make the steps up to the one after which the move happens."""
        assert self.job.planned is not None
        assert self.job.planned.after_step is not None
        while self.step < self.job.planned.after_step:
            self.steps(1, saved=False)
        return self.step


def moving() -> MoveStory:
    story = MoveStory()
    story.away()
    assert "MovePlanned" in story.save()
    return story


def test_ranks_move_to_a_spare_after_one_more_step_that_they_save() -> None:
    story = MoveStory()
    story.away()
    assert story.planned() is None, "what would be lost is saved first"
    assert "a spare takes its place after a step that its ranks save" in story.rule()
    assert story.save() == ["StepsUnsavedCleared", "MovePlanned", "StepPlanned"]
    step = story.boundary()
    assert story.state_of_job() is JobState.RUNNING, "it waits until that step is saved"
    done = story.leave(step)
    stops = [one.node for one in done if isinstance(one, actions.StopGeneration)]
    assert stops == ["n0", "n1"], "that to n1 reaches nobody"
    assert story.job.launchers["n1"].stale_generation == 1, "it takes no ranks before these stop"
    assert story.job.generation.members == ["n0", "n2"]
    assert (story.job.generation.number, story.job.generation.restore_step) == (2, step)
    assert story.job.planned is None
    incident = story.incidents[-1]
    assert (incident.cause, incident.node) == (Cause.DRAIN, "n1")
    assert "planned (move, automation): the agent of n1 is away" in incident.message


def test_ranks_that_are_left_behind_are_stopped_when_their_agent_is_back() -> None:
    story = moving()
    story.leave(story.boundary())
    hello = events.NodeConnected(
        node="n1", boot_id="1", agent_version="0.1.0", outbox="n1-box",
        highest_term=story.terms["n1-box"], host="n1", bulk_address="n1:1",
        liveness_address="n1:2", jobs=HERE,
    )  # fmt: skip
    done = story.tell(hello)
    (stopped,) = [one for one in done if isinstance(one, actions.StopGeneration)]
    assert (stopped.node, stopped.generation) == ("n1", 1)
    assert story.job.generation.members == ["n0", "n2"]


def test_the_step_of_the_move_is_the_one_that_ranks_without_an_agent_write() -> None:
    story = moving()
    assert story.findings == []
    wanted = AbsentSaving().after(story.job, ("n1",), None, story.now_ns)
    assert story.job.planned is not None
    assert wanted.step == story.job.planned.after_step
    lead = (wanted.step or 0) - story.step
    assert lead >= 10, "these ranks read of it in a folder"
    story.boundary()
    assert wanted.after(story.job, ("n1",), None, story.now_ns) is wanted, "it is still written"
    story.steps(3, saved=False)
    assert wanted.after(story.job, ("n1",), None, story.now_ns) is wanted


def test_the_agent_comes_back_and_the_move_is_withdrawn() -> None:
    story = moving()
    story.connect("n1", jobs=HERE)
    assert story.planned() is None
    assert not [name for name in story.core.state.timers if name.startswith("planned/")]
    story.steps(20, saved=True)
    assert (story.job.state, story.job.generation.number) == (JobState.RUNNING, 1)


def test_a_step_that_ranks_cannot_save_moves_nothing_and_costs_none() -> None:
    story = moving()
    story.boundary()
    story.steps(3, saved=False)
    told = story.tell(events.TimerDue(f"planned/{story.job.id}"), after_s=300)
    lines = [one for one in told if isinstance(one, actions.Announce)]
    (dropped,) = [one for one in lines if one.reason == "PlanDropped"]
    assert "was not saved within 300 s" in dropped.message
    assert (story.job.state, story.job.generation.number) == (JobState.RUNNING, 1)
    story.steps(70, saved=False)
    assert "was to be left already within an hour" in story.rule()
    story.save()
    assert story.planned() is None
    story.now_ns += 3600 * S
    story.steps(70, saved=False)
    story.save()
    assert story.planned() is PlannedKind.MOVE


def test_ranks_that_wait_at_the_step_of_the_move_do_not_stand_still() -> None:
    story = moving()
    story.boundary()
    timer = f"untold/{story.job.id}"
    for _ in range(3):
        story.tell(events.TimerDue(timer), after_s=15)
        assert story.state_of_job() is JobState.RUNNING
    story.tell(events.TimerDue(timer), after_s=20)
    assert story.state_of_job() is JobState.STOPPING, "not for ever"


def test_as_shipped_it_is_advice_and_says_so() -> None:
    story = MoveStory(Settings(mode=Mode.ENFORCE))
    story.away()
    assert "nothing moves its ranks by itself: the mode of StepsUnsaved is advise" in story.rule()
    assert "everstep drain n1" in story.rule()
    story.save()
    assert story.planned() is None


def test_without_a_spare_nothing_moves_until_one_waits() -> None:
    story = MoveStory(spare=False)
    story.away()
    assert "nothing moves its ranks by itself: no spare waits" in story.rule()
    story.save()
    assert story.planned() is None
    story.job.spec = replace(story.job.spec, storage=None)
    story.join("n2")
    assert story.planned() is PlannedKind.MOVE


def test_a_job_without_a_folder_is_not_moved_and_it_says_so() -> None:
    story = MoveStory()
    story.job.spec = replace(story.job.spec, storage=None)
    story.away()
    assert "nothing moves its ranks by itself: none of their steps is saved" in story.rule()


@pytest.mark.parametrize(
    ("state", "words"),
    [(NodeState.PROBATION, "the spare n2 is probation"), (NodeState.SUSPECT, "n2 is suspect")],
)
def test_a_spare_that_is_not_well_takes_no_place(state: NodeState, words: str) -> None:
    story = MoveStory()
    story.core.state.nodes["n2"].state = state
    story.away()
    assert words in story.rule()
    story.save()
    assert story.planned() is None


def test_automation_that_is_paused_begins_no_move_and_ends_none() -> None:
    story = MoveStory()
    story.tell(events.AutomationPaused("j", "ops", "debugging"))
    story.away()
    assert "nothing moves its ranks by itself: automation is paused" in story.rule()
    story.save()
    assert story.planned() is None
    story.tell(events.AutomationResumed("j", "ops"))
    assert story.planned() is PlannedKind.MOVE
    story.tell(events.AutomationPaused("j", "ops", "debugging"))
    story.recover(story.boundary())
    assert story.state_of_job() is JobState.RUNNING


def test_a_budget_that_is_spent_begins_no_move() -> None:
    story = MoveStory(replace(ENFORCED, job_stops_per_hour=0))
    story.away()
    assert "its budget of 0 stops an hour is spent" in story.rule()
    story.save()
    assert story.planned() is None


def test_a_move_counts_in_the_budgets() -> None:
    story = moving()
    assert len(story.core.state.isolations_ns) == 1
    story.recover(story.boundary())
    assert len(story.core.state.job_stops_ns[story.job.id]) == 1
    assert story.owners("n1") == [], "its node is not isolated"


def test_a_node_that_is_expected_back_is_not_left() -> None:
    story = MoveStory()
    begin_ns = story.now_ns + 7200 * S
    story.tell(
        events.MaintenanceOrdered(
            nodes=("n1",), begin_ns=begin_ns, end_ns=begin_ns + 3600 * S, operator="ops"
        )
    )
    story.away()
    assert "n1 is expected back: maintenance m-1" in story.rule()
    story.save()
    assert story.planned() is None


def test_a_node_that_somebody_drains_leaves_by_that() -> None:
    story = moving()
    story.tell(events.OperatorDrained("n1", "ops", "fan"))
    assert story.planned() is PlannedKind.DRAIN
    story.leave(story.boundary())
    assert story.job.generation.members == ["n0", "n2"]


def test_agents_of_two_members_are_away_and_nothing_moves() -> None:
    story = MoveStory()
    story.tell(events.NodeDisconnected("n0"))
    story.away()
    assert "the agents of several members are away" in story.rule()
    story.save()
    assert story.planned() is None


def test_the_spare_dies_before_the_step_and_the_job_goes_on_as_it_is() -> None:
    story = moving()
    step = story.boundary()
    story.tell(events.NodeDisconnected("n2"))
    assert "PlanDropped" in story.recover(step)
    assert (story.job.state, story.job.generation.number) == (JobState.RUNNING, 1)


def test_a_step_of_before_the_agent_went_away_is_no_reason_to_move() -> None:
    story = MoveStory()
    story.steps(70, saved=False)
    story.tell(events.NodeDisconnected("n1"))
    story.recover(story.step - 30)
    assert story.findings == []
    story.steps(5, saved=False)
    assert story.planned() is None


def test_a_controller_that_starts_waits_for_the_agents_before_it_ends_a_move() -> None:
    story = moving()
    restored = decode_state(encode(story.core.state))
    assert restored.newest("j").planned == story.job.planned
    story.tell(events.ControllerStarted("0.1.0"))
    story.connect("n0", jobs=HERE)
    story.connect("n2", jobs=(JobOnNode("j", 0, launcher=True),))
    assert story.planned() is PlannedKind.MOVE
    story.recover(story.boundary())
    assert story.state_of_job() is JobState.RUNNING, "n1 may be on its way back"
    story.tell(events.TimerDue("silence/n1"), after_s=120)
    assert story.state_of_job() is JobState.STOPPING


def test_an_operator_reads_what_ends_a_move() -> None:
    story = moving()
    assert "everstep pause j" in restarts.cancel_problem(story.core.state, story.job)
    assert story.job.planned is not None
    told = forecast.describe(story.job, story.job.planned)
    assert "is planned (move, automation): the agent of n1 is away" in told


def test_a_step_far_away_that_an_operator_named_keeps_none_from_being_saved() -> None:
    story = MoveStory()
    story.away()
    story.tell(events.RestartOrdered("j", "ops", "new code", story.step + 10_000))
    wanted = AbsentSaving().after(story.job, ("n1",), None, story.now_ns)
    assert wanted.step is not None
    assert wanted.step < story.step + 100


def test_a_thin_cadence_is_no_reason_against_a_move() -> None:
    story = MoveStory()
    cadence = replace(story.job.cadence, every=10, reason="dear")
    story.tell(events.CadenceChosen("j", cadence), after_s=0)
    story.away()
    story.save()
    assert story.planned() is PlannedKind.MOVE
