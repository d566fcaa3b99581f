"""A fault in the middle of planned work, and a plan in the middle of a recovery: two incidents."""

import pytest

from everstep_common import reports
from everstep_common.reports import Phase
from everstep_controller.core import actions, events
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.model.job import JobIncident, JobState
from unit.core.planned.test_restarts import PlannedStory, grown
from unit.core.test_decisions import S, Story


def stopping(*, spare: bool = True) -> PlannedStory:
    """A job that stops for a restart which an operator wants."""
    story = PlannedStory().begin(spare=spare)
    story.restart(at_step=4)
    story.recoverable(4)
    assert story.state_of_job() is JobState.STOPPING
    return story


def starting() -> PlannedStory:
    """The same job in the generation after that, before its first step."""
    story = stopping()
    story.stop_all()
    story.choose(4)
    for node in story.job.generation.members:
        phase = events.Reported(
            story.origin(node), story.now_ns, reports.PhaseReached(2, Phase.STARTED), "j"
        )
        story.tell(phase)
    assert story.state_of_job() is JobState.STARTING
    return story


def lose(story: Story, node: str) -> list[actions.Action]:
    """Have a node fall silent, and be judged."""
    return story.lose(node)


def left(story: PlannedStory, node: str) -> events.Reported[reports.LauncherLeft]:
    return events.Reported(
        story.origin(node), story.now_ns, reports.LauncherLeft("ended", False), "j"
    )


def causes(story: PlannedStory) -> list[str]:
    return [incident.cause for incident in story.incidents]


def costs(story: PlannedStory, incident: JobIncident) -> dict[Category, int]:
    return story.job.ledger.totals(story.now_ns + S, incident.id)


def goes_on(story: PlannedStory) -> None:
    """Take the job to new steps, and see that its books are right."""
    if story.state_of_job() is JobState.STOPPING:
        story.stop_all()
    if story.state_of_job() is JobState.REPLANNING:
        story.choose(4)
    for phase in Phase:
        for node in story.job.generation.members:
            reached = events.Reported(
                story.origin(node),
                story.now_ns,
                reports.PhaseReached(story.job.generation.number, phase),
                "j",
            )
            story.tell(reached)
    story.train(5, 6, 7, 8, 9, saved=9)
    assert story.state_of_job() is JobState.RUNNING
    assert all(incident.over_ns for incident in story.incidents)
    totals = story.job.ledger.totals(story.now_ns)
    assert sum(totals.values()) == story.job.ledger.wall_ns(story.now_ns)


def test_a_rank_that_dies_while_what_was_planned_starts_is_a_fault_and_its_time_no_plan() -> None:
    story = starting()
    story.exit_rank("n0")
    assert causes(story) == ["operator", "process"]
    planned, fault = story.incidents
    assert planned.over_ns
    goes_on(story)
    assert set(costs(story, planned)) == {Category.PLANNED}
    assert {Category.SCHEDULE, Category.DRAIN} <= set(costs(story, fault))
    assert Category.PLANNED not in costs(story, fault)


def test_ranks_that_die_of_the_stop_that_was_planned_are_no_fault() -> None:
    story = stopping()
    story.exit_rank("n0")
    assert causes(story) == ["operator"]
    goes_on(story)
    assert not [name for name in story.job.ledger.totals(story.now_ns) if name.startswith("inc.")]


def test_a_node_that_is_lost_while_a_plan_stops_the_job_is_a_fault_from_its_silence_on() -> None:
    story = stopping()
    lose(story, "n1")
    assert causes(story) == ["operator", "node"]
    planned, fault = story.incidents
    goes_on(story)
    assert costs(story, fault)[Category.DETECT] > 15 * S
    assert Category.PLANNED not in costs(story, fault)
    assert set(costs(story, planned)) <= {Category.PLANNED, Category.LOST_IN_FLIGHT}


def test_a_node_that_is_lost_when_the_next_generation_is_planned_is_a_fault_too() -> None:
    story = stopping()
    story.stop_all()
    assert story.state_of_job() is JobState.REPLANNING
    lose(story, "n1")
    assert causes(story) == ["operator", "node"]
    assert story.job.generation.members == ["n0", "n2"]
    goes_on(story)


def test_a_launcher_that_ends_on_a_drained_node_while_the_job_leaves_it_is_no_fault() -> None:
    story = PlannedStory().begin()
    story.drain("n1")
    assert story.job.planned is not None
    story.recoverable(story.job.planned.after_step or 0)
    story.tell(left(story, "n1"))
    assert causes(story) == ["drain"]


def test_a_launcher_that_ends_on_another_node_meanwhile_is_one() -> None:
    story = stopping()
    story.tell(left(story, "n0"))
    assert causes(story) == ["operator", "launcher"]
    goes_on(story)


def test_what_an_operator_does_while_a_job_stops_for_a_fault_makes_no_plan_of_it() -> None:
    story = PlannedStory().begin()
    story.exit_rank("n0")
    story.tell(events.OperatorIsolated("n1", "ops", "fan"))
    assert causes(story) == ["process"]
    goes_on(story)
    assert Category.PLANNED not in story.job.ledger.totals(story.now_ns)


def test_a_node_that_an_operator_isolates_while_a_fault_is_recovered_from_costs_planned_time() -> (
    None
):
    story = PlannedStory().begin()
    story.exit_rank("n0")
    story.stop_all()
    story.choose(4)
    story.tell(events.OperatorIsolated("n1", "ops", "fan"))
    assert causes(story) == ["process", "operator"]
    goes_on(story)
    fault, planned = story.incidents
    assert Category.PLANNED not in costs(story, fault)
    assert not [name for name in costs(story, planned) if name.startswith("inc.")]


def test_an_incident_that_took_over_is_over_only_at_a_step_that_is_new() -> None:
    story = PlannedStory().begin()
    story.train(4, 5, 6)
    story.restart(at_step=7)
    story.train(7)
    story.tell(events.TimerDue(f"planned/{story.job.id}"), after_s=301)
    story.stop_all()
    story.choose(3)
    story.exit_rank("n0")
    story.stop_all()
    story.choose(3)
    story.train(4, 5, 6, 7)
    assert not story.incidents[-1].over_ns
    story.train(8)
    assert story.incidents[-1].over_ns


def test_a_drain_whose_spare_is_gone_restarts_nothing_says_so_and_is_done_when_one_comes() -> None:
    story = PlannedStory().begin()
    story.drain("n1")
    assert story.job.planned is not None
    step = story.job.planned.after_step or 0
    story.tell(left(story, "n2"))
    said = story.recoverable(step)
    assert story.state_of_job() is JobState.RUNNING
    dropped = [a.message for a in said if isinstance(a, actions.Announce)]
    assert any("stays on n1 until another node joins" in message for message in dropped)
    assert not story.is_planned()
    story.join("n2")
    assert story.is_planned()


def test_a_fault_that_leaves_a_drained_node_where_it_is_has_not_done_what_was_planned() -> None:
    story = PlannedStory().begin()
    story.drain("n1")
    story.tell(left(story, "n2"))
    story.exit_rank("n0")
    story.stop_all()
    said = story.choose(3)
    assert story.job.generation.members == ["n0", "n1"]
    assert "PlanDone" not in [a.reason for a in said if isinstance(a, actions.Announce)]


@pytest.mark.parametrize("still_s", [9, 11])
def test_a_job_that_makes_no_steps_is_restarted_when_that_is_sure_not_after_one_more(
    still_s: int,
) -> None:
    story = PlannedStory().begin()
    story.train(*range(4, 14))
    story.recoverable(13)
    story.tell(events.RestartOrdered("j", "ops", "it hangs", None), after_s=still_s)
    assert (story.state_of_job() is JobState.STOPPING) == (still_s > 10)
    if still_s < 10:
        story.tell(events.TimerDue(f"still/{story.job.id}"), after_s=2)
    assert story.state_of_job() is JobState.STOPPING
    assert "no step was made since step 13" in story.job.reason
    assert causes(story) == ["operator"]


def test_a_job_that_stands_still_waits_ten_seconds_for_copies_and_longer_for_a_named_step() -> None:
    unsafe, named = PlannedStory().begin(), PlannedStory().begin()
    unsafe.train(4)
    unsafe.restart()
    named.restart(at_step=50)
    for story in (unsafe, named):
        story.tell(events.TimerDue(f"still/{story.job.id}"), after_s=9)
        assert story.state_of_job() is JobState.RUNNING
        story.tell(events.TimerDue(f"still/{story.job.id}"), after_s=60)
    assert (unsafe.state_of_job(), named.state_of_job()) == (JobState.STOPPING, JobState.RUNNING)


def test_of_a_job_that_has_ended_nothing_is_planned_any_more() -> None:
    story = PlannedStory().begin()
    story.restart(at_step=50)
    for node in story.job.generation.members:
        story.tell(
            events.Reported(story.origin(node), story.now_ns, reports.GenerationFinished(1), "j")
        )
    assert story.state_of_job() is JobState.ENDED
    assert not story.is_planned()


def test_a_job_does_not_restart_to_grow_when_the_node_that_waited_is_gone_again() -> None:
    story = grown()
    story.tell(events.OperatorReleased("n1", "ops", ""))
    for check in [one for one in story.core.due(0) if isinstance(one, actions.RunCheck)]:
        story.tell(
            events.Reported(story.origin("n1"), 0, reports.CheckFinished(check.id, True, "good"))
        )
    story.tell(events.TimerDue(f"growth/{story.job.id}"), after_s=61)
    assert story.job.planned is not None
    step = story.job.planned.after_step or 0
    story.tell(left(story, "n1"))
    story.recoverable(step)
    assert (story.state_of_job(), story.is_planned()) == (JobState.RUNNING, False)
