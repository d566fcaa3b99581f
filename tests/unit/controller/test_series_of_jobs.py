"""The number of series that one user's names can make Prometheus keep is bounded."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from everstep_agent.metrics.collector import _OF_JOBS_MAX, _findings, prometheus_text
from everstep_common.clock import Stamp
from everstep_common.endings import by_operator
from everstep_common.judging.book import BookEntry
from everstep_common.judging.findings import Finding, Severity
from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_controller.metrics.collector import SERIES_PER_USER_MAX, job_metrics
from unit.core.test_decisions import S, Story, launcher_joined

_MORE = 44


def _join(story: Story, job: str, uid: int) -> None:
    report = launcher_joined(uid=uid)
    story.tell(events.Reported(story.origin("n0"), 0, report, job))


def test_a_user_with_thousands_of_names_gets_no_more_series_and_takes_nobody_elses() -> None:
    story = Story()
    for number in range(SERIES_PER_USER_MAX + _MORE):
        _join(story, f"flood{number}", 1001)
    _join(story, "mine", 1002)
    families = {family.name: family for family in job_metrics(story.core.state, story.now_ns)}
    named = [sample.labels["job"] for sample in families["everstep_job_info"].samples]
    assert len(named) == SERIES_PER_USER_MAX + 1
    assert "mine" in named
    assert "flood0" in named, "the first ones stay, so that series do not come and go"
    (left,) = families["everstep_controller_jobs_without_series"].samples
    assert left.value == _MORE


def test_findings_about_jobs_take_no_more_than_a_share_of_a_nodes_series() -> None:
    def entry(component: str) -> BookEntry:
        finding = Finding(
            component=component, condition="C", severity=Severity.DEGRADED, message="m"
        )
        return BookEntry(finding, Stamp("b", 1, 1))

    jobs = [entry(f"job/j{number}/storage") for number in range(_OF_JOBS_MAX + _MORE)]
    (family,) = _findings((*jobs, entry("gpu/0")))
    told = [sample.labels["component"] for sample in family.samples]
    assert len(told) == _OF_JOBS_MAX + 1
    assert told[-1] == "gpu/0"


def test_a_label_can_neither_end_its_line_nor_add_a_series() -> None:
    hostile = 'x"} 1\neverstep_forged{a="\\'
    finding = Finding(
        component=f"disk/{hostile}", condition="C", severity=Severity.FATAL, message="m"
    )
    (family,) = _findings((BookEntry(finding, Stamp("b", 1, 1)),))

    class _One(Collector):
        def collect(self) -> "list[object]":  # type: ignore[override]
            return [family]

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_One())
    for text in (prometheus_text([family]), generate_latest(registry)):
        lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
        assert len(lines) == 1
        assert lines[0].startswith("everstep_node_finding_open{")


def test_a_job_that_failed_is_told_for_an_hour_and_one_that_was_ended_is_not() -> None:
    story = Story()
    story.run()
    job = story.core.state.newest("j")
    job.state, job.since_ns = JobState.ENDED, story.now_ns
    assert _failed(story) == ["j"]
    story.now_ns += 3599 * S
    assert _failed(story) == ["j"]
    story.now_ns += S
    assert _failed(story) == []
    job.since_ns = story.now_ns
    job.ending.wanted = by_operator("ann", "the budget is spent")
    assert _failed(story) == []
    job.ending.wanted = "the program fails at step 4 on every node"
    assert _failed(story) == ["j"]
    job.ending.succeeded = True
    assert _failed(story) == []


def _failed(story: Story) -> list[str]:
    families = {family.name: family for family in job_metrics(story.core.state, story.now_ns)}
    return [sample.labels["job"] for sample in families["everstep_job_failed"].samples]
