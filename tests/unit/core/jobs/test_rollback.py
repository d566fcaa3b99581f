"""Ranks that call a state bad: which steps are avoided then, and which data is left out."""

from everstep_common import reports
from everstep_common.reports import DataRange
from everstep_controller.core import actions, events
from everstep_controller.core.jobs import restore_point
from everstep_controller.core.jobs.incidents import merge_ranges
from everstep_controller.core.model.job import JobState
from unit.core.recovery.test_blame import Incidents


class BadSteps(Incidents):
    """A job that has come some steps far."""

    def go(self, first: int, last: int) -> None:
        for step in range(first, last + 1):
            self.progress(step)

    def call_bad(
        self, step: int, *, skip: DataRange | None = None, generation: int | None = None
    ) -> list[actions.Action]:
        return self.tell(
            events.Reported(
                self.origin("n0"),
                self.now_ns,
                reports.RollbackAsked(
                    generation=generation or self.job.generation.number,
                    rank=0,
                    step=step,
                    reason=f"step {step}: the loss is nan",
                    skip=skip,
                ),
                "j",
            )
        )

    def avoided(self) -> list[tuple[int, int]]:
        return list(restore_point.choose_step(self.core.state, self.job).avoided)


def _at_step_16() -> BadSteps:
    story = BadSteps()
    story.run()
    story.go(1, 16)
    return story


def test_the_bad_step_and_those_after_it_are_avoided_and_the_one_before_is_not() -> None:
    story = _at_step_16()
    done = story.call_bad(15)
    assert {a.node for a in done if isinstance(a, actions.StopGeneration)} == {"n0", "n1"}
    assert story.avoided() == [(1, step) for step in range(15, 19)]
    incident = story.incidents[-1]
    assert (incident.cause, incident.node) == ("rollback", "n0")
    assert 'go back before step 15: "step 15: the loss is nan"' in incident.message


def test_the_same_step_bad_again_goes_further_back() -> None:
    story = _at_step_16()
    story.call_bad(17)
    story.stop_all()
    story.tell(events.RecoveryStepChosen(job="j", generation=2, step=16, step_generation=1))
    assert (1, 16) not in story.avoided()
    story.call_bad(17)
    assert (1, 16) in story.avoided()


def test_what_the_rank_then_dies_of_is_not_the_cause() -> None:
    story = _at_step_16()
    story.call_bad(17)
    story.die("n0", "nan", exception="everstep.loss.BadStepError: step 17: the loss is nan")
    story.stop_all()
    assert story.incidents[-1].cause == "rollback"
    assert story.job.recovery.judgements[-1].node == ""
    assert story.job.state is JobState.REPLANNING


def test_data_that_is_left_out_is_told_to_the_next_generation() -> None:
    story = _at_step_16()
    story.call_bad(17, skip=DataRange(17, 17))
    story.call_bad(17, skip=DataRange(16, 17))
    story.stop_all()
    done = story.choose(15)
    started = [action for action in done if isinstance(action, actions.StartGeneration)]
    assert [action.skipped for action in started] == [(DataRange(16, 17),)] * 2


def test_an_older_generation_cannot_send_a_newer_one_back() -> None:
    story = _at_step_16()
    story.again("n0", "killed", step=16)
    before = story.job.generation.number
    assert story.call_bad(3, generation=before - 1) == []
    assert story.avoided() == []


def test_a_job_that_is_bad_again_and_again_ends() -> None:
    story = _at_step_16()
    for _ in range(3):
        story.call_bad(17)
        story.stop_all()
        if story.job.state is JobState.REPLANNING:
            story.choose(10)
    assert story.job.state is JobState.ENDED
    assert "the loss is nan" in story.job.reason


def test_ranges_of_data_are_kept_in_order_and_apart() -> None:
    told = [(7, 9), (1, 2), (3, 3), (8, 12), (20, 20)]
    kept = [(1, 3), (7, 12), (20, 20)]
    assert merge_ranges([DataRange(*one) for one in told]) == [DataRange(*one) for one in kept]
    assert merge_ranges([]) == []
