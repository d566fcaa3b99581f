"""A job that stands still, from the word of its nodes to its next generation or its end."""

from dataclasses import replace

import pytest

from everstep_common import reports
from everstep_common.hangs.reports.verdict import Confidence, HangClass
from everstep_common.judging.findings import Finding, Mode
from everstep_controller.core import actions, events
from everstep_controller.core.jobs import incidents
from everstep_controller.core.model.hang import SeenHang
from everstep_controller.core.model.incident import Remedy
from everstep_controller.core.model.job import Cause, JobFault, JobState
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.turn import Reconciliation
from everstep_controller.journal.codec import decode_event, decode_state, encode
from unit.core.hangs.test_response import seen
from unit.core.hangs.test_stillness import HangStory
from unit.core.jobs.test_stalls import told
from unit.core.test_decisions import XID, S

ENFORCED = Settings(mode=Mode.ENFORCE, stall_timeout_ns=60 * S, hang_patience_ns=120 * S)


class JudgedStory(HangStory):
    """A job of two nodes with a spare, whose ranks are looked at."""

    def begin_hang(self) -> "JudgedStory":
        self.begin()
        self.hang()
        return self

    def hang(self) -> None:
        self.now_ns += 3 * S
        members = tuple(self.job.generation.members)
        self.stand_still(*members, generation=self.job.generation.number)

    def judge(self, hang: SeenHang) -> list[actions.Action]:
        sentence = f"somebody is {hang.verdict.kind.value}"
        number = self.job.generation.number
        return self.tell(events.HangJudged(self.job.id, number, sentence, hang))

    def go_through(self, members: tuple[str, ...] = ("n0", "n1")) -> None:
        """Have the generation that is stopped be followed by the next one, up to its steps."""
        number = self.job.generation.number
        for node in members:
            self.stop_generation(node, number)

    def stop_generation(self, node: str, number: int) -> None:
        stopped = reports.GenerationStopped(number, 4000, 0)
        self.tell(events.Reported(self.origin(node), self.now_ns, stopped, "j"))

    def step_on(self, first: int) -> None:
        for step in range(first, first + 3):
            self.now_ns += S // 2
            self.progress(step)


def test_all_nodes_stand_still_and_so_does_the_job_at_once() -> None:
    story = HangStory(settings=ENFORCED).begin()
    story.now_ns += 3 * S
    assert told(story.stand_still("n0")) == []
    assert story.state_of_job() is JobState.RUNNING
    ((reason, message),) = told(story.stand_still("n1"))
    assert reason == "JobStalled"
    assert "no step and no collective for 3.3 s since step 4 (usual: at most 0.7 s)" in message
    assert story.state_of_job() is JobState.STALLED
    assert decode_state(encode(story.core.state)) == story.core.state


def test_where_collectives_are_not_seen_the_sentence_says_so() -> None:
    story = HangStory(settings=ENFORCED).begin()
    story.stand_still("n0", "n1", blind="no recorder")
    assert story.state_of_job() is JobState.RUNNING
    story.wait(2)
    assert "no step for" in story.job.reason
    assert "collectives are not seen: no recorder" in story.job.reason


def test_a_node_whose_agent_is_away_is_not_waited_for() -> None:
    story = HangStory(settings=ENFORCED).begin()
    story.tell(events.NodeDisconnected("n1"))
    story.stand_still("n0")
    assert story.state_of_job() is JobState.STALLED


def test_after_a_start_of_the_controller_every_agent_is_waited_for() -> None:
    story = HangStory(settings=ENFORCED).begin()
    story.tell(events.NodeDisconnected("n0"))
    story.tell(events.NodeDisconnected("n1"))
    story.tell(events.ControllerStarted("0.1.0"))
    story.connect("n0", jobs=(reports.JobOnNode("j", 1, True),))
    story.stand_still("n0")
    assert story.state_of_job() is JobState.RUNNING
    story.connect("n1", jobs=(reports.JobOnNode("j", 1, True),))
    story.stand_still("n1")
    assert story.state_of_job() is JobState.STALLED


def test_it_runs_again_when_a_rank_moves_and_the_stall_is_remembered() -> None:
    story = HangStory(settings=ENFORCED).begin()
    story.stand_still("n0", "n1")
    story.now_ns += 40 * S
    story.go_on("n1")
    assert story.state_of_job() is JobState.RUNNING
    (stand,) = story.job.recovery.usual_stands
    assert stand.stood_ns >= 40 * S
    story.wait(60)
    assert story.state_of_job() is JobState.STALLED
    assert not story.job.hang.by_word, "it has made no step for as long as jobs may"


def test_steps_that_were_made_before_a_node_stood_still_are_told_after_it() -> None:
    story = HangStory(settings=ENFORCED).begin()
    number = story.job.ledger.steps[-1].step
    made = [
        reports.RanksStandStill(generation=1, step=number + 1, since_boot_ns=1, usual_ns=S)
        for _ in range(2)
    ]
    for node, report in zip(("n0", "n1"), made, strict=True):
        story.tell(events.Reported(story.origin(node), story.now_ns, report, "j"))
    assert story.state_of_job() is JobState.STALLED
    assert f"since step {number + 1} (usual" in story.job.reason
    assert not told(story.progress(number + 1)), "it has made no step since it was told to stand"
    assert story.state_of_job() is JobState.STALLED
    assert story.job.hang.onset_ns == story.job.ledger.steps[-1].end_ns
    story.now_ns = story.job.ledger.steps[-1].end_ns + 30 * S
    ((reason, message),) = told(story.progress(number + 2))
    assert reason == "JobRunning"
    assert message == (
        f"j is running: all ranks make steps again, from step {number + 2} on,"
        " after 30.0 s without one"
    )
    assert story.state_of_job() is JobState.RUNNING


def test_a_step_ends_a_stall_that_nodes_told_of() -> None:
    story = HangStory(settings=ENFORCED).begin()
    story.stand_still("n0", "n1")
    story.progress(5)
    assert story.state_of_job() is JobState.RUNNING


def test_a_rank_that_cannot_go_on_is_restarted_in_place_at_once() -> None:
    story = JudgedStory(settings=ENFORCED).begin_hang()
    done = story.judge(seen(HangClass.FROZEN, (1, "n1"), looks=1))
    assert story.state_of_job() is JobState.STOPPING
    assert {one.node for one in done if isinstance(one, actions.StopGeneration)} == {"n0", "n1"}
    incident = story.open_incident
    assert incident is not None
    assert (incident.cause, incident.node) == ("stalled", "")
    story.go_through()
    assert list(story.job.generation.members) == ["n0", "n1"]
    assert story.job.recovery.judgements[-1].remedy is Remedy.RESTART
    assert not any(story.owners(node) for node in ("n0", "n1"))
    assert decode_state(encode(story.core.state)) == story.core.state


def test_what_may_go_on_is_restarted_by_the_look_after_the_patience_and_not_before() -> None:
    story = JudgedStory(settings=ENFORCED).begin_hang()
    hang = seen(HangClass.CPU_SIDE, (0, "n0"))
    done = story.judge(hang)
    assert story.state_of_job() is JobState.STALLED
    assert "it is restarted when no rank has moved for 120 s" in story.job.hang.plan
    assert [reason for reason, _ in told(done)] == ["HangJudged", "HangPlanned"]
    due_ns = story.job.hang.due_ns
    story.wait(600)
    assert story.state_of_job() is JobState.STALLED, "nobody has looked again"
    assert story.now_ns > due_ns
    assert told(story.judge(hang))[0][0] == "JobFault"
    assert story.state_of_job() is JobState.STOPPING


def test_paused_automation_restarts_nothing() -> None:
    story = JudgedStory(settings=ENFORCED).begin_hang()
    story.tell(events.AutomationPaused("j", "ops", "debugging"))
    story.judge(seen(HangClass.FROZEN, (1, "n1")))
    assert story.state_of_job() is JobState.STALLED
    assert story.job.hang.due_ns > story.now_ns
    story.tell(events.AutomationResumed("j", "ops"))
    story.judge(seen(HangClass.FROZEN, (1, "n1")))
    assert story.state_of_job() is JobState.STOPPING


def test_a_program_that_calls_different_operations_ends_its_job_with_the_sentence() -> None:
    story = JudgedStory(settings=ENFORCED).begin_hang()
    story.judge(seen(HangClass.DESYNC, (1, "n1"), looks=1))
    assert story.state_of_job() is JobState.STALLED
    story.judge(seen(HangClass.DESYNC, (1, "n1"), looks=2))
    story.go_through()
    assert story.state_of_job() is JobState.ENDED
    assert story.job.ending.failed
    assert "somebody is desync" in story.job.reason
    assert not any(story.owners(node) for node in ("n0", "n1"))


def test_a_fatal_finding_of_the_culprits_node_has_it_replaced() -> None:
    story = JudgedStory(settings=Settings(mode=Mode.ADVISE, hang_patience_ns=120 * S)).begin_hang()
    story.find("n1", _XID_3B)
    assert story.state_of_job() is JobState.STALLED
    story.judge(_using("0000:3b:00.0"))
    assert story.state_of_job() is JobState.STOPPING
    assert story.job.generation.hang_judgement is not None
    assert story.job.generation.hang_judgement.node == "n1"


_XID_3B = replace(XID, component="gpu/0000:3b:00.0")
_DISK = replace(XID, component="disk/nvme0", condition="DiskFailed", message="nvme0 is gone")
_ADVISED = Settings(
    mode=Mode.ADVISE, hang_patience_ns=120 * S, evidence_window_ns=60 * S, stall_timeout_ns=600 * S
)


def _using(*devices: str, known: bool = True) -> SeenHang:
    """Return that rank 1 computes while others wait for it, with these devices open."""
    evaluates = seen(HangClass.CPU_SIDE, (1, "n1"), stuck=False)
    return replace(evaluates, devices=devices if known else None)


@pytest.mark.parametrize(
    ("finding", "hang", "before_s", "replaced"),
    [
        (_XID_3B, _using("0000:3b:00.0"), 30, True),
        (_XID_3B, _using("00000000:3B:00.0"), 0, True),
        (_XID_3B, _using("0000:5e:00.0"), 0, False),
        (_XID_3B, _using(), 0, False),
        (_XID_3B, _using(known=False), 0, False),
        (_XID_3B, _using("0000:3b:00.0"), 90, False),
        (_DISK, _using(), 30, True),
        (_DISK, _using(known=False), 30, True),
        (_DISK, _using(), 90, False),
        (replace(XID, component="driver/nvidia"), _using(), 0, False),
        (replace(XID, component="driver/nvidia"), _using("0000:5e:00.0"), 0, True),
    ],
)
def test_a_finding_is_evidence_for_the_ranks_devices_and_around_the_stall_alone(
    finding: Finding, hang: SeenHang, before_s: int, *, replaced: bool
) -> None:
    story = JudgedStory(settings=_ADVISED).begin()
    story.find("n1", finding)
    for step in range(5, 5 + 2 * before_s):
        story.now_ns += S // 2
        story.progress(step)
    story.hang()
    story.judge(hang)
    assert (story.state_of_job() is JobState.STOPPING) is replaced
    judged = story.job.generation.hang_judgement
    assert ((judged.node if judged else "") == "n1") is replaced


def test_a_finding_that_is_older_than_the_generation_was_borne_by_it() -> None:
    story = JudgedStory(settings=_ADVISED).begin()
    story.find("n1", _DISK)
    story.exit_rank("n0")
    story.go_through()
    story.choose(None)
    story.step_on(2)
    (held,) = story.core.state.nodes["n1"].health.findings.values()
    assert held.since_ns < story.job.generation.began_ns
    assert story.now_ns - held.since_ns < 60 * S
    story.hang()
    story.judge(_using())
    assert story.state_of_job() is JobState.STALLED


def test_a_finding_that_comes_while_the_job_stands_still_counts_however_long_it_has() -> None:
    story = JudgedStory(settings=_ADVISED).begin_hang()
    story.judge(_using())
    story.now_ns += 100 * S
    story.find("n1", _DISK)
    story.judge(_using())
    assert story.state_of_job() is JobState.STOPPING


def _restart_for(story: JudgedStory, hang: SeenHang, first: int) -> None:
    story.judge(hang)
    assert story.state_of_job() is JobState.STOPPING, story.job.hang
    members = tuple(story.job.generation.members)
    story.go_through(members)
    story.choose(None)
    story.step_on(first)
    assert story.state_of_job() is JobState.RUNNING


def test_a_rank_that_hangs_twice_on_a_node_goes_to_a_spare_and_a_third_time_is_the_program() -> (
    None
):
    story = JudgedStory(settings=ENFORCED).begin()
    story.join("n2")
    for first in (20, 40):
        story.hang()
        _restart_for(story, seen(HangClass.GIL_HELD, (1, "n1")), first)
    assert list(story.job.generation.members) == ["n0", "n2"]
    assert story.owners("n1") == []
    story.hang()
    story.judge(seen(HangClass.GIL_HELD, (1, "n2")))
    story.go_through(("n0", "n2"))
    assert story.state_of_job() is JobState.ENDED
    assert "rank 1 held it back in the same way on n1 before it was moved" in story.job.reason


def test_a_node_on_which_two_ranks_hang_is_replaced_and_checked() -> None:
    story = JudgedStory(settings=ENFORCED).begin()
    story.join("n2")
    story.hang()
    _restart_for(story, seen(HangClass.GIL_HELD, (1, "n1")), 20)
    story.hang()
    story.judge(seen(HangClass.GIL_HELD, (0, "n1")))
    story.go_through()
    assert story.owners("n1") == ["automation"]
    assert story.state("n1") in (NodeState.REPAIRING, NodeState.VALIDATING)
    assert list(story.job.generation.members) == ["n0", "n2"]


def test_where_automation_only_advises_no_node_is_claimed_for_hangs() -> None:
    story = JudgedStory(settings=Settings(mode=Mode.ADVISE, hang_patience_ns=120 * S)).begin()
    story.join("n2")
    story.hang()
    _restart_for(story, seen(HangClass.GIL_HELD, (1, "n1")), 20)
    story.hang()
    story.judge(seen(HangClass.GIL_HELD, (0, "n1")))
    story.go_through()
    assert story.owners("n1") == []


def test_a_job_that_is_frozen_again_and_again_is_told_and_never_ended_nor_is_its_node() -> None:
    story = JudgedStory(settings=ENFORCED).begin()
    story.join("n2")
    waited: list[int] = []
    for _ in range(8):
        story.hang()
        frozen = seen(HangClass.FROZEN, (1, "n1"))
        since_ns = story.now_ns
        story.judge(frozen)
        while story.state_of_job() is JobState.STALLED:
            story.now_ns = max(story.now_ns, story.job.hang.due_ns)
            story.judge(frozen)
        waited.append((story.now_ns - since_ns) // S)
        assert story.state_of_job() is JobState.STOPPING
        story.go_through(tuple(story.job.generation.members))
        story.choose(None)
        story.step_on(2)
    assert waited[0] < 5
    assert waited[2:] == sorted(waited[2:])
    assert waited[-1] > 30 * waited[1] > 0
    assert story.state_of_job() is JobState.RUNNING
    assert list(story.job.generation.members) == ["n0", "n1"]
    assert not any(story.owners(node) for node in ("n0", "n1", "n2"))


@pytest.mark.parametrize(
    "causes",
    [("node",) * 6, ("finding",) * 6, ("restart",) * 6],
)
def test_restarts_for_what_no_program_does_are_no_attempts_of_it(causes: tuple[str, ...]) -> None:
    story = JudgedStory(settings=ENFORCED).begin()
    story.join("n2")
    for cause in causes:
        _interrupt(story, cause)
        members = tuple(story.job.generation.members)
        story.go_through(members)
        story.choose(None)
    assert story.state_of_job() is JobState.STARTING, story.job.reason
    assert story.job.recovery.restarts == len(causes)
    assert story.job.recovery.restarts_without_progress == 0


def _interrupt(story: JudgedStory, cause: str) -> None:
    """Have a generation that has made no step stopped for what no program does."""
    kind = {"node": Cause.NODE, "finding": Cause.FINDING, "restart": Cause.OPERATOR}[cause]
    turn = Reconciliation(story.core.state, story.now_ns)
    incidents.judge_fault(turn, story.job, JobFault(story.now_ns, kind, "n1", "from outside"))


@pytest.mark.parametrize("kind", [HangClass.CPU_SIDE, HangClass.UNKNOWN])
def test_a_stall_at_the_same_step_waits_twice_as_long_and_people_are_told(kind: HangClass) -> None:
    story = JudgedStory(settings=ENFORCED).begin_hang()
    hang = seen(kind, (0, "n0"), confidence=Confidence.LIKELY)
    story.now_ns += 130 * S
    story.judge(hang)
    story.go_through()
    story.choose(None)
    for step in (2, 3, 4):
        story.progress(step)
    story.hang()
    story.now_ns += 130 * S
    story.judge(hang)
    assert story.state_of_job() is JobState.STALLED
    assert "no rank has moved for 240 s (it was restarted for a stall at this step" in (
        story.job.hang.plan
    )


def test_a_job_without_a_verdict_is_restarted_by_its_own_setting() -> None:
    settings = Settings(
        mode=Mode.ENFORCE,
        stall_timeout_ns=60 * S,
        stall_restart_timeout_ns=300 * S,
        hang_patience_ns=900 * S,
    )
    story = JudgedStory(settings=settings).begin()
    story.wait(299)
    assert story.state_of_job() is JobState.STALLED
    story.wait(2)
    assert story.state_of_job() is JobState.STOPPING
    judged = JudgedStory(settings=settings).begin()
    judged.wait(100)
    judged.judge(seen(HangClass.CPU_SIDE, (0, "n0")))
    judged.wait(400)
    assert judged.state_of_job() is JobState.STALLED


def test_a_verdict_of_an_older_version_is_read_and_decides_nothing() -> None:
    row = b'{"job":"j-1","generation":1,"sentence":"Rank 2 holds the job back"}'
    assert decode_event("HangJudged", row) == events.HangJudged(
        "j-1", 1, "Rank 2 holds the job back"
    )
    story = JudgedStory(settings=ENFORCED).begin_hang()
    story.tell(events.HangJudged(story.job.id, 1, "Rank 2 holds the job back"))
    assert story.state_of_job() is JobState.STALLED
    assert story.job.hang.due_ns == 0


def test_the_largest_verdict_is_a_bounded_row() -> None:
    hang = seen(HangClass.FROZEN, *((rank, "n" * 250) for rank in range(64)))
    row = encode(events.HangJudged("j-1", 1, "x" * 500, hang))
    assert len(row) <= 64 * 1024
    assert decode_event("HangJudged", row) == events.HangJudged("j-1", 1, "x" * 500, hang)


def test_what_no_node_says_is_told_by_steps_and_never_as_no_time_at_all() -> None:
    story = JudgedStory(settings=ENFORCED).begin()
    story.wait(61)
    story.judge(seen(HangClass.FROZEN, (1, "n1"), looks=1))
    assert story.open_incident is not None
    assert "stands still, no step for 61." in story.open_incident.message


def test_the_word_of_a_node_that_knows_no_steps_is_of_when_its_agent_looked() -> None:
    story = HangStory(settings=ENFORCED).begin()
    last_ns = story.job.ledger.steps[-1].end_ns
    story.now_ns += 4 * S
    story.stand_still("n0")
    frozen = reports.RanksStandStill(
        generation=1, since_boot_ns=1, usual_ns=S, looked_boot_ns=1 + 4 * S
    )
    story.tell(events.Reported(story.origin("n1"), last_ns - S // 2, frozen, "j"))
    assert story.state_of_job() is JobState.STALLED


def test_a_step_that_is_printed_after_that_look_is_waited_for_until_it_could_be_taken_back() -> (
    None
):
    story = HangStory(settings=ENFORCED).begin()
    story.now_ns += 4 * S
    looked = reports.RanksStandStill(generation=1, since_boot_ns=1, usual_ns=S, looked_boot_ns=2)
    story.tell(events.Reported(story.origin("n1"), story.now_ns, looked, "j"))
    story.now_ns += S
    story.progress(5)
    story.stand_still("n0")
    assert story.state_of_job() is JobState.RUNNING
    story.go_on("n0")
    story.now_ns += 3 * S
    story.stand_still("n0")
    assert story.state_of_job() is JobState.STALLED
