"""Steps that are not saved while a job goes on: when people are told, what, and until when."""

from dataclasses import replace

import pytest

from everstep_common import reports
from everstep_common.judging.findings import Finding, Mode, Severity
from everstep_common.reports import JobOnNode
from everstep_controller.api.admin.messages import fleet_messages
from everstep_controller.api.admin.queries import _more
from everstep_controller.core import actions, events
from everstep_controller.core.jobs import unsaved
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.node import OpenFinding
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.snapshots import Cadence
from everstep_controller.core.planned import forecast
from everstep_controller.journal.codec import decode_state, encode
from unit.core.test_decisions import S, Story

SHIPPED = Settings(mode=Mode.ENFORCE)
# What the agent of a member says when it is back.
HERE = (JobOnNode("j", 1, launcher=True),)


class SavingStory(Story):
    """A job of two nodes with steps of a second, each of which is snapshotted."""

    def __init__(self, settings: Settings = SHIPPED) -> None:
        super().__init__(settings=settings)
        self.run()
        self.step, self.recoverable = 0, 0

    @property
    def job(self) -> JobRecord:
        return self.core.state.newest("j")

    @property
    def findings(self) -> list[OpenFinding]:
        return list(unsaved.findings(self.core.state))

    def steps(self, count: int, *, saved: bool, stall_ns: int = 1000) -> list[str]:
        """Make steps, and return what people are told meanwhile."""
        told: list[str] = []
        for _ in range(count):
            self.step += 1
            self.recoverable = self.step if saved else self.recoverable
            done = self.tell(self.row(stall_ns), after_s=1)
            told += [one.reason for one in done if isinstance(one, actions.Announce)]
        return told

    def row(self, stall_ns: int) -> events.JobProgressed:
        return events.JobProgressed(
            job="j",
            generation=self.job.generation.number,
            first_step=self.step,
            end_ns=(self.now_ns + S,),
            stall_ns=(stall_ns,),
            recoverable_step=self.recoverable,
        )


def saving() -> SavingStory:
    story = SavingStory()
    assert story.steps(100, saved=True) == []
    return story


def test_steps_that_become_recoverable_are_no_finding() -> None:
    assert saving().findings == []


def test_the_agent_of_a_member_stays_away_and_people_read_what_a_failure_would_cost() -> None:
    story = saving()
    story.tell(events.NodeDisconnected("n1"))
    assert story.steps(60, saved=False) == []
    assert story.steps(1, saved=False) == ["StepsUnsaved"]
    assert story.steps(100, saved=False) == [], "once"
    (held,) = story.findings
    found = held.finding
    assert (found.component, found.severity) == ("controller/snapshots/j", Severity.DEGRADED)
    assert "a failure of j now costs 161 steps (2 min 41 s of training)" in found.message
    assert "no step after 100 is recoverable" in found.message
    assert "the agent of n1 is away: its stream has ended" in found.message
    assert "'journalctl -u everstep-agent' on n1" in found.rule
    assert "the job was started without --persist" in found.message
    assert "nothing moves its ranks by itself" in found.rule
    assert "everstep drain n1" in found.rule


def test_it_is_over_when_a_newer_step_is_recoverable() -> None:
    story = saving()
    story.tell(events.NodeDisconnected("n1"))
    story.steps(70, saved=False)
    story.connect("n1", jobs=HERE)
    assert story.steps(3, saved=False) == [], "an agent that is back has saved nothing yet"
    assert len(story.findings) == 1
    assert story.steps(1, saved=True) == ["StepsUnsavedCleared"]
    assert story.findings == []
    assert story.steps(100, saved=True) == []


def test_it_is_over_also_where_no_row_of_steps_says_so() -> None:
    story = saving()
    story.steps(70, saved=False)
    assert len(story.findings) == 1
    story.tell(events.StepRecoverable("j", story.job.generation.number, 165))
    assert story.findings == []


def test_an_agent_that_is_back_in_time_is_no_finding() -> None:
    story = saving()
    story.tell(events.NodeDisconnected("n1"))
    assert story.steps(50, saved=False) == []
    story.connect("n1", jobs=HERE)
    assert story.steps(100, saved=True) == []


def test_what_a_node_says_of_the_job_is_the_reason_where_all_agents_are_there() -> None:
    story = saving()
    said = Finding(
        component="job/j",
        condition="SnapshotsSkipped",
        severity=Severity.DEGRADED,
        message="snapshots of job j are skipped: its slots are not free in time",
    )
    story.tell(events.Reported(story.origin("n1"), story.now_ns, reports.FindingRaised(said)))
    story.steps(70, saved=False)
    (held,) = story.findings
    assert "n1 says: snapshots of job j are skipped" in held.finding.message
    assert "everstep findings n1" in held.finding.rule


def test_where_nobody_says_why_the_table_of_copies_is_named() -> None:
    story = saving()
    story.steps(70, saved=False)
    (held,) = story.findings
    assert "copies of newer ones are missing" in held.finding.message
    assert "everstep snapshots j" in held.finding.rule


def test_a_script_that_saves_seldom_is_no_finding() -> None:
    story = saving()
    assert story.steps(1000, saved=False, stall_ns=0) == []
    assert story.steps(1, saved=False) == [], "its copies are on their way"
    assert story.steps(1, saved=True) == []
    assert story.findings == []


def test_a_script_that_saves_nothing_is_no_finding() -> None:
    story = SavingStory()
    story.tell(events.NodeDisconnected("n1"))
    for _ in range(200):
        story.step += 1
        story.tell(replace(story.row(0), recoverable_step=None), after_s=1)
    assert story.findings == []


def test_a_thin_cadence_has_nothing_to_save_in_between() -> None:
    story = saving()
    cadence = Cadence(every=100, start=0, reason="dear")
    story.tell(events.CadenceChosen("j", cadence), after_s=0)
    story.tell(events.NodeDisconnected("n1"))
    assert story.steps(99, saved=False, stall_ns=0) == [], "the step after 100 is 200"
    assert story.steps(62, saved=False, stall_ns=0) == ["StepsUnsaved"]


def test_a_job_whose_first_snapshot_never_becomes_recoverable_is_told_as_well() -> None:
    story = SavingStory()
    for _ in range(70):
        story.step += 1
        story.tell(replace(story.row(1000), recoverable_step=None), after_s=1)
    (held,) = story.findings
    assert "now costs 71 steps" in held.finding.message
    assert "no step is recoverable" in held.finding.message


@pytest.mark.parametrize("limit_s", [0, 10])
def test_the_time_is_an_operators_and_may_be_never(limit_s: int) -> None:
    story = SavingStory(replace(SHIPPED, unsaved_max_ns=limit_s * S))
    story.steps(5, saved=True)
    told = story.steps(30, saved=False)
    assert told == (["StepsUnsaved"] if limit_s else [])


def test_time_in_which_no_controller_listened_does_not_count() -> None:
    story = saving()
    story.steps(30, saved=False)
    story.now_ns += 3600 * S
    story.tell(events.ControllerStarted("0.1.0"))
    assert story.steps(50, saved=False) == []
    assert story.steps(15, saved=False) == ["StepsUnsaved"]


def test_a_start_of_the_controller_takes_back_nothing_that_was_told() -> None:
    story = saving()
    story.steps(70, saved=False)
    story.tell(events.ControllerStarted("0.1.0"))
    assert "StepsUnsavedCleared" not in story.steps(5, saved=False)
    assert len(story.findings) == 1


def test_the_next_generation_begins_without_it() -> None:
    story = saving()
    story.steps(70, saved=False)
    story.exit_rank("n0")
    assert story.findings == [], "what it has cost is an incident by now"
    assert unsaved.steps_at_risk(story.job) == 0
    story.stop_all()
    story.choose(100)
    assert not story.job.generation.unsaved.told


def test_every_view_of_the_job_says_it() -> None:
    story = saving()
    story.steps(70, saved=False)
    state = story.core.state
    assert unsaved.steps_at_risk(story.job) == 70
    (line,) = fleet_messages.job_detail(state, story.job, story.now_ns).findings
    assert (line.node, line.condition) == ("controller", "StepsUnsaved")
    assert any("now costs 70 steps" in more for more in _more(state, story.job, story.now_ns))


def test_an_operator_reads_what_a_drain_costs_while_steps_are_not_saved() -> None:
    story = saving()
    story.join("n2")
    free = "j goes on without n1 after a step that is recoverable: n2 takes its place"
    assert forecast.forecast(story.core.state, story.job, "n1") == free
    story.steps(70, saved=False)
    told = forecast.forecast(story.core.state, story.job, "n1")
    assert told.startswith(f"{free}; its newest 70 steps are not saved")
    assert told.endswith("after step 100, unless a newer one is recoverable within 300 s")


def test_the_state_is_written_down_with_it() -> None:
    story = saving()
    story.steps(70, saved=False)
    restored = decode_state(encode(story.core.state))
    assert restored.newest("j").generation.unsaved == story.job.generation.unsaved
