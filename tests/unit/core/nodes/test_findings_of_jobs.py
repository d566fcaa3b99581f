"""A finding about a job counts for the job: its node stays good for everybody else."""

import pytest

from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_controller.api.admin.messages import fleet_messages as messages
from everstep_controller.core.model.node import NodeState
from unit.core.test_decisions import XID, Story

UNSTORED = Finding(
    component="job/llama/storage",
    condition="StorageFailing",
    severity=Severity.DEGRADED,
    message="the job's steps do not reach its storage",
    suggested_action=SuggestedAction.REPAIR_HARDWARE,
    mode=Mode.ENFORCE,
)


@pytest.mark.parametrize("severity", list(Severity))
def test_a_finding_of_a_job_makes_its_node_neither_suspect_nor_isolated(severity: Severity) -> None:
    story = Story()
    story.find("n1", _of_severity(UNSTORED, severity))
    node = story.core.state.nodes["n1"]
    assert node.state is NodeState.HEALTHY
    assert not node.isolation.claims
    assert not node.isolation.deferred
    assert len(node.health.findings) == 1, "people are shown it all the same"


def test_a_check_is_passed_in_spite_of_a_fatal_finding_of_a_job() -> None:
    story = Story()
    story.find("n1", _of_severity(UNSTORED, Severity.FATAL))
    story.connect("n1", boot="2")
    assert story.core.state.nodes["n1"].state is not NodeState.REPAIRING


def test_a_finding_of_the_node_beside_it_counts() -> None:
    story = Story()
    story.find("n1", UNSTORED)
    story.find("n1", XID)
    assert story.core.state.nodes["n1"].state is NodeState.REPAIRING


@pytest.mark.parametrize(
    ("component", "job"),
    [
        ("job/llama", "llama"),
        ("job/llama/storage", "llama"),
        ("disk/job/llama", ""),
        ("jobs", ""),
        ("job", ""),
        ("gpu/0000:3b:00.0", ""),
    ],
)
def test_only_a_component_of_a_job_is_a_jobs(component: str, job: str) -> None:
    assert FindingKey(component, "StorageFailing").job == job


def test_a_job_is_shown_with_the_findings_about_it_and_no_others() -> None:
    story = Story()
    story.run()
    job = story.core.state.newest("j")
    name = job.name
    mine = _about(f"job/{name}/storage")
    for finding in (mine, _about(f"job/{name}er/storage"), XID):
        story.find(job.generation.members[0], finding)
    detail = messages.job_detail(story.core.state, job, story.now_ns)
    assert [line.component for line in detail.findings] == [mine.component]


def _of_severity(finding: Finding, severity: Severity) -> Finding:
    return Finding(
        component=finding.component,
        condition=finding.condition,
        severity=severity,
        message=finding.message,
        suggested_action=finding.suggested_action,
        mode=finding.mode,
    )


def _about(component: str) -> Finding:
    return Finding(
        component=component,
        condition="StorageFailing",
        severity=Severity.DEGRADED,
        message=UNSTORED.message,
        mode=Mode.ADVISE,
    )
