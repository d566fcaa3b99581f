"""What foretells a failure asks for a planned swap: told with the command, done where enforced."""

import json
from dataclasses import replace

import pytest

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_common import reports
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity
from everstep_controller.api.admin.messages.fleet_messages import job_detail, node_detail
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState, Members
from everstep_controller.core.model.node import AUTOMATION, FindingOwner
from everstep_controller.core.model.node_findings import PRECURSORS, precursor_of
from everstep_controller.core.model.settings import Settings
from everstep_controller.journal.codec import decode_state, encode
from everstep_controller.judging.judges import JUDGES
from unit.core.jobs.test_stalls import told
from unit.core.planned.test_restarts import train_unsaved
from unit.core.planned.test_slow_swap import SlowStory, part

_ENFORCED = Settings(mode=Mode.ENFORCE, enforce=("NodePrecursor",))
_VANISHED = Finding(
    component="gpu/0000:3b:00.0",
    condition="GpuMetricsVanished",
    severity=Severity.DEGRADED,
    message="the GPU tells less than its peers",
    evidence="3 metrics; 7 peers tell them",
    mode=Mode.ADVISE,
)
_CLOCKS = Finding(
    component="gpus",
    condition="GpuClocksBelowPeers",
    severity=Severity.DEGRADED,
    message="GPUs run at lower clocks than their peers in the same job",
    evidence="GPU 0000:3b:00.0: SM clock 1,230 MHz beside 1,755 MHz of 63 peers",
    mode=Mode.ADVISE,
)


class PrecursorStory(SlowStory):
    """A job of two nodes with a spare, on which failures are foretold."""

    def judged(self, node: str, finding: Finding | None = _CLOCKS) -> list[actions.Action]:
        """Let a judge of the controller find something about a node, or find it over."""
        event = events.VerdictChanged(node, _CLOCKS.key, finding, _CLOCKS.evidence, ())
        return self.tell(event)

    def over(self, node: str) -> list[actions.Action]:
        report = reports.FindingCleared(_VANISHED.component, _VANISHED.condition, "all told")
        return self.tell(events.Reported(self.origin(node), self.now_ns, report))

    def plan(self, node: str = "n1") -> str:
        return self.core.state.nodes[node].swap.plan


def test_every_precursor_is_a_condition_of_its_owner() -> None:
    judged = {one.name for judge in JUDGES for one in judge.conditions}
    for name, owner in PRECURSORS.items():
        assert name in (judged if owner is FindingOwner.CONTROLLER else CONDITIONS)


def test_as_shipped_it_is_told_with_the_command_in_all_three_places() -> None:
    story = PrecursorStory(settings=Settings(mode=Mode.ENFORCE)).begin()
    lines = dict(told(story.find("n1", _VANISHED)))
    for words in ("mode of NodePrecursor is advise", "everstep drain n1 --reason", "3 metrics"):
        assert words in lines["PrecursorPlanned"]
    assert story.drained() == []
    state = story.core.state
    assert "everstep drain n1" in node_detail(state, state.nodes["n1"], None, ()).swap_plan
    (line,) = job_detail(state, story.job, story.now_ns).swap_plans
    assert "everstep drain n1" in line
    assert node_detail(state, state.nodes["n0"], None, ()).swap_plan == ""


@pytest.mark.parametrize("owner", ["agent", "controller"])
def test_where_it_is_enforced_the_node_is_drained_and_given_back_when_it_is_over(
    owner: str,
) -> None:
    story = PrecursorStory(settings=_ENFORCED).begin()
    story.find("n1", _VANISHED) if owner == "agent" else story.judged("n1")
    assert (story.drained(), story.is_planned()) == (["n1"], True)
    assert story.state_of_job() is JobState.RUNNING
    assert decode_state(encode(story.core.state)) == story.core.state
    step = story.job.planned.after_step if story.job.planned else None
    assert step is not None
    story.recoverable(step)
    story.stop_all()
    story.choose(step)
    assert sorted(story.job.generation.members) == ["n0", "n2"]
    assert story.job.generation.restore_step == step
    assert story.drained() == ["n1"]
    story.over("n1") if owner == "agent" else story.judged("n1", None)
    assert story.drained() == []
    assert story.core.state.index.precursors == []


def test_a_job_whose_steps_are_not_saved_is_moved_when_they_are() -> None:
    story = PrecursorStory(settings=_ENFORCED).begin()
    last = story.job.lineage.last_step or 0
    train_unsaved(story, last + 1)
    story.find("n1", _VANISHED)
    assert story.drained() == []
    assert "are not saved, and it would lose them" in story.plan()
    plan = story.plan()
    story.train(last + 71)
    assert story.plan() == plan, "it is told once, not with each step"
    story.train(last + 72, saved=last + 72)
    assert story.drained() == ["n1"]


def test_a_swap_that_was_begun_waits_until_steps_are_saved_again() -> None:
    story = PrecursorStory(settings=_ENFORCED).begin()
    story.find("n1", _VANISHED)
    assert (story.drained(), story.is_planned()) == (["n1"], True)
    last = story.job.lineage.last_step or 0
    train_unsaved(story, last + 1)
    timer = events.TimerDue(f"planned/{story.job.id}")
    story.tell(timer, after_s=300)
    assert (story.state_of_job(), story.is_planned()) == (JobState.RUNNING, True)
    assert timer.timer in story.core.state.timers, "it is looked at again"
    story.train(last + 71, saved=last + 71)
    assert story.state_of_job() is JobState.STOPPING
    assert story.incidents[-1].cause == "drain"


def test_no_job_has_to_say_that_it_is_slow() -> None:
    story = PrecursorStory(settings=_ENFORCED).begin()
    story.judged("n1")
    story.judge()  # nobody is slow
    assert story.drained() == ["n1"]


@pytest.mark.parametrize(
    "finding",
    [
        replace(_VANISHED, severity=Severity.INFO),
        replace(_VANISHED, mode=Mode.OBSERVE),
        replace(_VANISHED, condition="IbLinkRecoveries"),
        # One node alone cannot tell its link from the switch.
        replace(_VANISHED, condition="IbLoneRecoveries"),
        # The name of a judge's condition in an agent's mouth is nothing that a judge has found.
        replace(_VANISHED, condition="GpuClocksBelowPeers"),
    ],
)
def test_what_is_only_told_or_is_no_precursor_asks_for_nothing(finding: Finding) -> None:
    story = PrecursorStory(settings=_ENFORCED).begin()
    story.find("n1", finding)
    assert (story.drained(), story.plan()) == ([], "")


def test_what_many_nodes_of_the_job_tell_at_once_moves_none_of_them() -> None:
    """A new driver tells less on all nodes."""
    story = PrecursorStory(nodes=8, settings=_ENFORCED).begin()
    state = story.core.state
    for name in ("n3", "n4", "n5"):
        story.find(name, _VANISHED)
    story.job.generation.members = Members(["n0", "n1", "n3", "n4", "n5"])
    story.find("n1", _VANISHED)
    assert story.drained() == []
    assert "as on 3 of the 4 other nodes of j: one cause for all" in state.nodes["n1"].swap.plan
    assert "everstep drain n1 --reason TEXT" in state.nodes["n1"].swap.plan


def test_without_a_spare_it_waits_for_one() -> None:
    story = PrecursorStory(settings=_ENFORCED).begin(spare=False)
    story.find("n1", _VANISHED)
    assert story.drained() == []
    assert "n1 is swapped when a spare waits" in story.plan()
    story.join("n2")
    assert story.drained() == ["n1"]


def test_within_other_planned_work_it_waits() -> None:
    story = PrecursorStory(nodes=4, settings=_ENFORCED).begin()
    story.join("n3")
    story.find("n0", _VANISHED)
    story.find("n1", _VANISHED)
    assert story.drained() == ["n0"]
    assert "when what is planned is done" in story.plan("n1")


def test_a_spent_budget_and_a_pause_forbid_it_and_room_lets_it() -> None:
    none_at_once = replace(_ENFORCED, isolation_budget_nodes=0, isolation_budget_ratio=0.0)
    story = PrecursorStory(settings=none_at_once).begin()
    story.find("n1", _VANISHED)
    assert story.drained() == []
    assert "budget" in story.plan()
    paused = PrecursorStory(settings=_ENFORCED).begin()
    paused.tell(events.AutomationPaused("j", "ops", "look"))
    paused.find("n1", _VANISHED)
    assert paused.drained() == []
    assert "look" in paused.plan()
    paused.tell(events.AutomationResumed("j", "ops"))
    assert paused.drained() == ["n1"]


def test_a_node_that_somebody_keeps_out_or_without_a_job_is_left() -> None:
    story = PrecursorStory(settings=_ENFORCED).begin()
    story.find("n2", _VANISHED)
    assert (story.drained(), story.plan("n2")) == ([], "")
    story.tell(events.OperatorIsolated("n1", "ops", "mine"))
    story.find("n1", _VANISHED)
    assert AUTOMATION not in story.owners("n1")


def test_an_operators_release_is_the_word_that_it_is_dealt_with() -> None:
    story = PrecursorStory(settings=_ENFORCED).begin()
    story.judged("n1")
    assert story.drained() == ["n1"]
    story.tell(events.OperatorReleased("n1", "ops", "known"))
    assert (story.drained(), story.core.state.index.precursors) == ([], [])


def test_a_trend_tells_what_it_was_at_first_and_is_now() -> None:
    story = PrecursorStory(settings=Settings(mode=Mode.ENFORCE)).begin()
    story.find("n1", replace(_VANISHED, severity=Severity.INFO, evidence="1 metric"))
    assert story.plan() == ""
    story.find("n1", _VANISHED)
    assert "7 peers tell them), since" in story.plan()
    assert "when it was 1 metric" in story.plan()
    assert decode_state(encode(story.core.state)) == story.core.state


def test_a_slow_rank_with_such_a_finding_is_swapped_for_it() -> None:
    slow = Settings(mode=Mode.ENFORCE, enforce=("SlowNode",))
    story = PrecursorStory(settings=slow).begin()
    story.judge(part())
    assert story.drained() == []
    story.judged("n1")
    assert story.drained() == ["n1"]
    claim = story.core.state.nodes["n1"].claim_of(AUTOMATION)
    assert claim is not None
    assert "1,230 MHz beside 1,755 MHz of 63 peers" in claim.reason


def test_a_domain_that_is_low_is_the_controllers_finding_and_of_no_node() -> None:
    story = PrecursorStory(settings=_ENFORCED).begin()
    key = FindingKey("domain/r1", "DomainClocksLow")
    low = replace(_CLOCKS, component=key.component, condition=key.condition)
    lines = told(story.tell(events.VerdictChanged("", key, low, "7 of 8 nodes of r1", ())))
    assert [reason for reason, _ in lines] == ["DomainClocksLow"]
    assert [one.finding for one in story.core.state.findings.values()] == [low]
    assert story.drained() == []
    assert decode_state(encode(story.core.state)) == story.core.state
    lines = told(story.tell(events.VerdictChanged("", key, None, "1 of 8 nodes of r1", ())))
    assert [reason for reason, _ in lines] == ["DomainClocksLowCleared"]
    assert not story.core.state.findings


def test_an_older_snapshot_is_read() -> None:
    story = PrecursorStory(settings=_ENFORCED).begin()
    story.find("n1", _VANISHED)
    snapshot = json.loads(encode(story.core.state))
    for node in snapshot["nodes"].values():
        del node["swap"]["plan"]
        for held in node["health"]["findings"].values():
            held.pop("first_evidence", None)
    older = decode_state(json.dumps(snapshot).encode())
    assert precursor_of(older.policy_of("n1"), older.nodes["n1"]) is not None
