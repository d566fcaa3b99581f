"""A job that stands still is shown as that, and restarted only where an operator wants it."""

from typing import Self

import pytest

from everstep_common.judging.findings import Mode
from everstep_controller.core import actions, events
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.settings import Settings
from everstep_controller.journal.codec import decode_state, encode
from unit.core.chosen_settings import STALLS_IGNORED
from unit.core.test_decisions import S, Story

SHOWN = Settings(mode=Mode.ENFORCE, stall_timeout_ns=60 * S)
RESTARTED = Settings(mode=Mode.ENFORCE, stall_timeout_ns=60 * S, stall_restart_timeout_ns=300 * S)


class StillStory(Story):
    """A job of two nodes whose steps take half a second, until they end."""

    @property
    def job(self) -> JobRecord:
        return self.core.state.newest("j")

    def state_of_job(self) -> JobState:
        return self.job.state

    def begin(self) -> Self:
        self.run()
        for step in range(1, 5):
            self.now_ns += S // 2
            self.progress(step)
        return self

    def wait(self, seconds: float) -> list[actions.Action]:
        """Let time pass, and every timer come due in it."""
        end_ns = self.now_ns + int(seconds * S)
        done: list[actions.Action] = []
        while due := [(at, name) for name, at in self.core.state.timers.items() if at <= end_ns]:
            at_ns, name = min(due)
            self.now_ns = max(self.now_ns, at_ns)
            done += self.tell(events.TimerDue(name), 0)
        self.now_ns = max(self.now_ns, end_ns)
        return done


def told(done: list[actions.Action]) -> list[tuple[str, str]]:
    return [(one.reason, one.message) for one in done if isinstance(one, actions.Announce)]


def test_a_job_without_a_step_is_shown_as_stalled_once_and_runs_with_the_next_one() -> None:
    story = StillStory(settings=SHOWN).begin()
    assert told(story.wait(59)) == []
    ((reason, message),) = told(story.wait(3600))
    assert reason == "JobStalled"
    assert "no step for 60 s since step 4, which took 0.6 s" in message
    assert story.state_of_job() is JobState.STALLED
    stood_s = (story.now_ns - story.job.ledger.steps[-1].end_ns) / S
    assert told(story.progress(5)) == [
        (
            "JobRunning",
            "j is running: all ranks make steps again, from step 5 on,"
            f" after {stood_s:.1f} s without one",
        )
    ]
    assert story.state_of_job() is JobState.RUNNING
    assert story.open_incident is None
    assert story.job.generation.number == 1


def test_a_job_that_makes_steps_is_asked_no_more_than_once_a_while() -> None:
    story = StillStory(settings=SHOWN).begin()
    fired = 0
    for step in range(5, 605):
        due = [name for name, at in story.core.state.timers.items() if at <= story.now_ns]
        fired += len(due)
        for name in due:
            story.tell(events.TimerDue(name), 0)
        story.now_ns += S // 2
        story.progress(step)
    assert story.state_of_job() is JobState.RUNNING
    assert 0 < fired <= 360 // 60 + 1


def test_what_took_long_before_is_no_news() -> None:
    story = StillStory(settings=SHOWN).begin()
    story.now_ns += 50 * S  # an evaluation
    story.progress(5)
    story.progress(6)
    story.wait(149)
    assert story.state_of_job() is JobState.RUNNING
    story.wait(5)
    assert story.state_of_job() is JobState.STALLED


@pytest.mark.parametrize("settings", [STALLS_IGNORED, Settings(mode=Mode.ENFORCE), SHOWN])
def test_by_default_nothing_but_people_stops_it(settings: Settings) -> None:
    story = StillStory(settings=settings).begin()
    done = story.wait(86_400)
    assert not [one for one in done if isinstance(one, actions.StopGeneration)]
    ignored = settings is STALLS_IGNORED
    assert story.state_of_job() is (JobState.RUNNING if ignored else JobState.STALLED)


def test_where_that_is_wanted_it_is_stopped_and_the_time_counted_from_its_last_step() -> None:
    story = StillStory(settings=RESTARTED).begin()
    last_ns = story.job.ledger.steps[-1].end_ns
    story.wait(299)
    assert story.state_of_job() is JobState.STALLED
    done = story.wait(2)
    assert story.state_of_job() is JobState.STOPPING
    assert {one.node for one in done if isinstance(one, actions.StopGeneration)} == {"n0", "n1"}
    incident = story.open_incident
    assert incident is not None
    assert (incident.cause, incident.node, incident.onset_ns) == ("stalled", "", last_ns)
    assert "no rank of j has ended, and none makes steps" in incident.message
    costs = story.job.ledger.totals(story.now_ns, incident.id)
    assert costs[Category.DETECT] == pytest.approx(300 * S, rel=0.01)


def test_a_fault_of_a_stalled_job_is_a_fault_like_any_other() -> None:
    story = StillStory(settings=RESTARTED).begin()
    story.wait(120)
    story.exit_rank("n1")
    assert story.state_of_job() is JobState.STOPPING
    assert story.open_incident is not None
    assert story.open_incident.cause == "process"


def test_an_operator_restarts_it_at_once_and_paused_automation_does_not() -> None:
    story = StillStory(settings=RESTARTED).begin()
    story.tell(events.AutomationPaused("j", "ops", "debugging"))
    story.wait(4000)
    assert story.state_of_job() is JobState.STALLED
    story.tell(events.AutomationResumed("j", "ops"))
    story.wait(11)
    assert story.state_of_job() is JobState.STOPPING


def test_a_stalled_job_is_one_after_the_controller_is_back() -> None:
    story = StillStory(settings=RESTARTED).begin()
    story.wait(100)
    state = decode_state(encode(story.core.state))
    assert state == story.core.state
    assert state.newest("j").state is JobState.STALLED
    assert f"stalled/{state.names['j']}" in state.timers


def test_steps_that_a_controller_was_not_there_to_hear_of_were_made_all_the_same() -> None:
    story = StillStory(settings=RESTARTED).begin()
    story.now_ns += 3600 * S  # the controller is away
    story.tell(events.ControllerStarted("0.1.0"))
    story.wait(20)
    assert story.state_of_job() is JobState.RUNNING
    story.progress(5)
    story.wait(30)
    assert story.state_of_job() is JobState.RUNNING


_JUDGED = "Rank 2 holds the job back: CPU side"


def test_who_holds_a_stalled_job_back_stands_beside_why_it_is_stalled_until_the_next_step() -> None:
    story = StillStory(settings=SHOWN).begin()
    story.wait(61)
    done = story.tell(events.HangJudged(story.job.id, 1, _JUDGED))
    assert told(done) == [("HangJudged", f"j: {_JUDGED}")]
    assert story.job.reason.startswith("no step for 60 s")
    assert story.job.reason.endswith(_JUDGED)
    assert told(story.tell(events.HangJudged(story.job.id, 1, _JUDGED))) == []
    assert story.state_of_job() is JobState.STALLED
    story.progress(5)
    assert _JUDGED not in story.job.reason


@pytest.mark.parametrize("generation", [0, 2])
def test_a_verdict_on_another_generation_says_nothing(generation: int) -> None:
    story = StillStory(settings=SHOWN).begin()
    story.wait(61)
    assert told(story.tell(events.HangJudged(story.job.id, generation, _JUDGED))) == []
    assert _JUDGED not in story.job.reason


def test_a_verdict_that_comes_after_the_next_step_says_nothing() -> None:
    story = StillStory(settings=SHOWN).begin()
    story.wait(61)
    story.progress(5)
    assert told(story.tell(events.HangJudged(story.job.id, 1, _JUDGED))) == []
    assert told(story.tell(events.HangJudged("gone-1", 1, _JUDGED))) == []
