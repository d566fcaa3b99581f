"""A slow node is swapped for what its agent finds, and never for what ranks tell."""

import json
import re
from dataclasses import dataclass, replace
from typing import Self

import pytest

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_common import reports
from everstep_common.judging.findings import Finding, Mode, Severity
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState, Members
from everstep_controller.core.model.node import (
    AUTOMATION,
    FindingOwner,
    NodeHealth,
    NodeRecord,
    NodeSpec,
    OpenFinding,
)
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.slowness import JobSlowness, SlowPart
from everstep_controller.core.model.state import State
from everstep_controller.core.nodes.claims import why_ineligible
from everstep_controller.core.planned.slow_evidence import (
    APART_NS,
    EVIDENCE,
    JUDGED,
    evidence_of,
)
from everstep_controller.core.planned.swaps import SwapCase, decide_slow
from everstep_controller.core.recovery.pair_tests import PAIR_TEST_SLOW
from everstep_controller.journal.codec import decode_event, decode_state, encode
from everstep_controller.judging.gpu_conditions import BRAKE, PCIE
from everstep_controller.judging.gpu_conditions import CLOCKS as CLOCKS_BELOW
from unit.core.jobs.test_stalls import told
from unit.core.planned.test_restarts import PlannedStory
from unit.core.test_decisions import S

ENFORCED = Settings(mode=Mode.ENFORCE, enforce=("SlowNode",))
CLOCKS = Finding(
    component="gpu/0",
    condition="GpuClocksLow",
    severity=Severity.DEGRADED,
    message="GPU 0 runs at 800 MHz",
    mode=Mode.ADVISE,
)


def part(node: str = "n1", *, worth: bool = True, kind: str = "rank") -> SlowPart:
    return SlowPart(
        kind=kind,
        name="1" if kind == "rank" else node,
        node=node if kind != "domain" else "",
        factor=1.3,
        since_step=2,
        share=1.0,
        worth_swap=worth,
        sentence="rank 1 takes 1.30 times as long",
    )


class SlowStory(PlannedStory):
    """A job of two nodes with a spare, of which ranks are judged."""

    def begin(self, *, spare: bool = True) -> Self:
        super().begin(spare=spare)
        return self

    def judge(self, *parts: SlowPart, generation: int | None = None) -> list[actions.Action]:
        number = generation or self.job.generation.number
        sentence = parts[0].sentence if parts else "nobody is slow any more"
        return self.tell(events.SlowJudged(self.job.id, number, sentence, parts))

    def clear(self, node: str) -> list[actions.Action]:
        report = reports.FindingCleared(CLOCKS.component, CLOCKS.condition, "1,980 MHz again")
        return self.tell(events.Reported(self.origin(node), self.now_ns, report))

    def wait_until(self, hours: float) -> None:
        self.now_ns = int(hours * APART_NS)

    def plan(self) -> str:
        return self.job.slow.plan

    def drained(self) -> list[str]:
        return list(self.core.state.index.draining)


def _case() -> SwapCase:
    return SwapCase(job="j", node="n1", found="its agent found X", has_spare=True)


def test_a_node_is_drained_only_where_nothing_speaks_against_it() -> None:
    assert decide_slow(part(), _case()).drain
    assert not decide_slow(part(worth=False), _case()).drain
    assert not decide_slow(part(kind="domain"), _case()).drain
    for case in (
        replace(_case(), found=""),
        replace(_case(), neighbour="k"),
        replace(_case(), refusal="the mode of SlowNode is advise"),
        replace(_case(), planned=True),
        replace(_case(), has_spare=False),
    ):
        assert not decide_slow(part(), case).drain


def test_all_that_is_evidence_is_a_condition_of_agents_and_found_in_time() -> None:
    assert set(CONDITIONS) >= EVIDENCE
    assert all(CONDITIONS[name].window_ns <= APART_NS for name in EVIDENCE)
    assert {CLOCKS_BELOW.name, BRAKE.name, PCIE.name} == JUDGED


def test_without_a_finding_of_its_agent_it_is_told_how_to_swap_a_slow_node() -> None:
    story = SlowStory(settings=ENFORCED).begin()
    (judged, planned) = told(story.judge(part()))
    assert judged == ("SlowJudged", "j: rank 1 takes 1.30 times as long")
    assert planned[0] == "SlowPlanned"
    assert "everstep drain n1" in planned[1]
    assert (story.drained(), story.is_planned()) == ([], False)
    assert told(story.judge(part())) == [judged, planned]


def test_with_a_finding_a_spare_takes_its_place_at_a_step_boundary_and_no_step_is_lost() -> None:
    story = SlowStory(settings=ENFORCED).begin()
    story.judge(part())
    story.find("n1", CLOCKS)
    assert (story.drained(), story.is_planned()) == (["n1"], True)
    assert story.state_of_job() is JobState.RUNNING
    assert decode_state(encode(story.core.state)) == story.core.state
    step = story.job.planned.after_step if story.job.planned else None
    assert step is not None
    story.recoverable(step)
    assert story.state_of_job() is JobState.STOPPING
    story.stop_all()
    story.choose(step)
    assert sorted(story.job.generation.members) == ["n0", "n2"]
    assert story.job.generation.restore_step == step
    assert story.drained() == ["n1"]
    why = why_ineligible(story.core.state, story.core.state.nodes["n1"])
    assert "everstep release n1" in why
    story.clear("n1")
    assert story.drained() == []


@pytest.mark.parametrize(
    "settings",
    [Settings(mode=Mode.ENFORCE), Settings(advise=("SlowNode",))],
)
def test_only_where_operators_let_it_automation_swaps(settings: Settings) -> None:
    story = SlowStory(settings=settings).begin()
    story.find("n1", CLOCKS)
    ((_, plan),) = [one for one in told(story.judge(part())) if one[0] == "SlowPlanned"]
    assert "GpuClocksLow" in plan
    assert "mode of SlowNode is advise" in plan
    assert story.drained() == []


@dataclass(frozen=True)
class Times:
    """When a finding began, when ranks were compared first, and when they became slow; hours."""

    found: float
    compared: float
    slow: float
    evidence: bool


@pytest.mark.parametrize(
    "times",
    [
        # A fault and its slowness, whichever is known first.
        Times(found=9.5, compared=1, slow=10, evidence=True),
        Times(found=10.5, compared=1, slow=10, evidence=True),
        # A finding of yesterday, on a node on which the job was slow from its first step on.
        Times(found=1, compared=9.9, slow=10, evidence=True),
        # One with which the same ranks have run at their peers' pace for hours.
        Times(found=1, compared=2, slow=10, evidence=False),
        Times(found=8, compared=2, slow=10, evidence=False),
        # One that came hours after.
        Times(found=12, compared=1, slow=10, evidence=False),
    ],
)
def test_what_is_found_counts_where_it_fits_the_slowness_in_time(times: Times) -> None:
    story = SlowStory(settings=ENFORCED).begin()
    story.wait_until(times.found)
    story.find("n1", CLOCKS)
    story.wait_until(max(times.slow, times.found))
    slow = replace(
        part(),
        began_ns=int(times.slow * APART_NS),
        compared_ns=int(times.compared * APART_NS),
    )
    story.judge(slow)
    assert story.drained() == (["n1"] if times.evidence else [])
    if not times.evidence:
        assert "what is found on n1 does not explain it (its agent found" in story.plan()
        assert "GpuClocksLow" in story.plan()
        assert story.core.state.nodes["n1"].pair.nominated_ns, "a pair test shows it"
    assert decode_state(encode(story.core.state)) == story.core.state


def test_a_job_that_lies_for_a_while_on_a_node_with_an_old_finding_moves_nobody() -> None:
    """It has stepped there for a day; however often it takes its word back and gives it again."""
    story = SlowStory(settings=ENFORCED).begin()
    story.find("n1", CLOCKS)
    compared_ns = story.now_ns
    for hour in range(2, 26, 3):
        story.wait_until(hour)
        story.judge(replace(part(), began_ns=story.now_ns, compared_ns=compared_ns))
        assert story.drained() == []
        story.judge()


def test_a_pair_test_measures_what_is_slow_however_late() -> None:
    finding = replace(CLOCKS, component="node", condition=PAIR_TEST_SLOW.name)
    held = OpenFinding(finding, 9 * APART_NS, FindingOwner.CORE)
    slow = replace(part(), began_ns=APART_NS, compared_ns=APART_NS)
    node, job = (
        NodeRecord("n1", health=NodeHealth(findings={"core": held})),
        SlowStory().begin().job,
    )
    assert evidence_of(State(settings=ENFORCED), node, job, slow).found
    # One of yesterday, with which the node was as fast as others since.
    healed = replace(slow, began_ns=12 * APART_NS)
    evidence = evidence_of(State(settings=ENFORCED), node, job, healed)
    assert (evidence.found, bool(evidence.doubted)) == ("", True)


@pytest.mark.parametrize(
    ("having", "members", "domain", "evidence"),
    [
        # A switch, a governor that is set everywhere, heat in the hall: all have it.
        (7, 8, "r0", False),
        (2, 8, "r0", False),
        (1, 8, "r0", True),
        # Most of a rack in a large job.
        (4, 40, "r0", False),
        (4, 40, "", True),
        # With fewer than three others nobody can tell.
        (2, 3, "r0", True),
    ],
)
def test_what_many_nodes_of_the_job_have_makes_none_of_them_slower_than_the_others(
    having: int, members: int, domain: str, evidence: bool
) -> None:
    story = SlowStory(nodes=4, settings=ENFORCED).begin()
    state, job = story.core.state, story.job
    names = [f"m{number}" for number in range(members)]
    for number, name in enumerate(names):
        state.nodes[name] = NodeRecord(name, spec=NodeSpec(domain=domain if number < 6 else "r9"))
    job.generation.members = Members(names)
    held = OpenFinding(CLOCKS, 1, FindingOwner.AGENT)
    for name in names[: having + 1]:
        state.nodes[name].health.findings["agent"] = held
    found = evidence_of(state, state.nodes["m0"], job, part("m0"))
    assert bool(found.found) == evidence
    if not evidence:
        assert re.search(r"as on \d of the \d other nodes of (r0|j)", found.doubted)
        judged = replace(CLOCKS, component="gpus", condition="GpuClocksBelowPeers")
        state.nodes["m0"].health.findings = {"judge": OpenFinding(judged, 1)}
        assert evidence_of(state, state.nodes["m0"], job, part("m0")).found, "compared already"


def test_what_is_over_for_the_moment_is_no_evidence() -> None:
    """A finding that comes and goes stays open for a minute; what was closed is none at all."""
    story = SlowStory(settings=ENFORCED).begin()
    for _ in range(3):
        story.find("n1", CLOCKS)
        story.clear("n1")
    assert any("GpuClocksLow" in name for name in story.core.state.nodes["n1"].health.findings)
    story.judge(part())
    assert story.drained() == []


def test_a_node_is_given_back_though_an_older_finding_is_open_that_had_slowed_nobody() -> None:
    story = SlowStory(settings=ENFORCED).begin()
    story.find("n1", replace(CLOCKS, condition="CpuGovernor", component="host/cpu"))
    story.wait_until(5)
    story.find("n1", CLOCKS)
    story.judge(replace(part(), began_ns=story.now_ns, compared_ns=S))
    assert story.drained() == ["n1"]
    story.clear("n1")
    assert story.drained() == []


def test_single_events_slow_no_step_down() -> None:
    for name in ("MemoryErrorCorrected", "MachineCheckCorrected", "PcieErrorCorrected"):
        story = SlowStory(settings=ENFORCED).begin()
        story.find("n1", replace(CLOCKS, condition=name))
        story.judge(part())
        assert story.drained() == []


def test_a_job_that_gives_and_takes_back_its_word_spends_the_budget_of_one_isolation() -> None:
    """All others of the fleet are isolated from the same budget."""
    story = SlowStory(nodes=8, settings=ENFORCED).begin()
    story.find("n1", CLOCKS)
    spent = len(story.core.state.isolations_ns)
    for _ in range(10):
        story.judge(part())
        story.now_ns += 61 * S
        story.judge()
        assert story.drained() == []
    assert len(story.core.state.isolations_ns) == spent + 1
    story.judge(part())
    assert story.drained() == []
    assert "was drained already within an hour" in story.plan()
    story.wait_until(1 + story.now_ns / APART_NS)
    story.judge()
    story.judge(part())
    assert story.drained() == ["n1"]


def test_who_is_slow_no_more_before_the_boundary_stays() -> None:
    story = SlowStory(settings=ENFORCED).begin()
    story.find("n1", CLOCKS)
    story.judge(part())
    assert story.drained() == ["n1"]
    lines = [reason for reason, _ in told(story.judge())]
    assert {"SlowJudged", "NodeReleased", "PlanDropped"} <= set(lines)
    assert (story.drained(), story.is_planned()) == ([], False)
    assert story.job.slow.plan == ""


def test_an_operators_release_is_the_word_that_the_finding_is_dealt_with() -> None:
    story = SlowStory(settings=ENFORCED).begin()
    story.find("n1", CLOCKS)
    story.judge(part())
    story.tell(events.OperatorReleased("n1", "ops", "known"))
    assert story.drained() == []
    assert AUTOMATION not in story.owners("n1")


def test_without_a_spare_and_within_other_planned_work_it_waits() -> None:
    story = SlowStory(settings=ENFORCED).begin(spare=False)
    story.find("n1", CLOCKS)
    story.judge(part())
    assert story.drained() == []
    assert "when a spare waits" in story.job.slow.plan
    story.join("n2")
    assert story.drained() == ["n1"]


def test_the_second_slow_node_waits_for_the_first_one() -> None:
    story = SlowStory(nodes=4, settings=ENFORCED).begin()
    story.join("n3")
    story.find("n0", CLOCKS)
    story.find("n1", CLOCKS)
    story.judge(part("n0"), part("n1"))
    assert story.drained() == ["n0"]


def test_of_another_generation_nothing_is_judged() -> None:
    story = SlowStory(settings=ENFORCED).begin()
    assert story.judge(part(), generation=7) == []
    assert story.job.slow.parts == ()


def test_it_is_journaled_with_its_numbers_and_older_journals_are_read() -> None:
    story = SlowStory(settings=ENFORCED).begin()
    event = events.SlowJudged("j-1", 1, "who", (part(), part(kind="domain")))
    assert decode_event("SlowJudged", encode(event)) == event
    story.judge(part())
    assert decode_state(encode(story.core.state)) == story.core.state
    snapshot = json.loads(encode(story.core.state))
    del snapshot["jobs"][story.job.id]["slow"]
    older = decode_state(json.dumps(snapshot).encode())
    assert older.jobs[story.job.id].slow == JobSlowness()
