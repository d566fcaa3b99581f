"""States at the command line: how a job ended, what is not known yet, which nodes are drained."""

import pytest
from rich.console import RenderableType

from everstep_cli.views.fleet import node_lines
from everstep_cli.views.jobs import incident_list, job_list, job_sheet, ledger_sheet
from everstep_proto.generated import admin_pb2
from fakes.cli_fleet import JOB, LEDGER, NOW_NS, nodes
from unit.cli import test_snapshot_views


def draw(*views: RenderableType) -> str:
    """Return what is drawn on a wide screen."""
    return test_snapshot_views.draw(*views, width=200)


def _ended(outcome: str) -> admin_pb2.JobSummary:
    ended = admin_pb2.JobSummary()
    ended.CopyFrom(JOB.summary)
    ended.job, ended.state, ended.outcome = f"job-{outcome}", "ended", outcome
    ended.reason = f"why it {outcome}"
    return ended


def test_a_list_of_jobs_tells_success_from_failure_and_says_why_one_failed() -> None:
    outcomes = ("succeeded", "failed", "cancelled", "replaced")
    drawn = draw(*job_list([_ended(one) for one in outcomes]))
    assert all(one in drawn.split() for one in outcomes)
    assert "job-failed: why it failed" in drawn
    assert "why it cancelled" not in drawn
    assert "ended" not in drawn


def _undecided() -> admin_pb2.JobDetail:
    job = admin_pb2.JobDetail()
    job.CopyFrom(JOB)
    job.summary.undecided_step = 115
    job.has_recoverable = False
    return job


def test_a_step_of_which_nobody_knows_whether_it_is_made_again_is_shown_so() -> None:
    assert "115?" in draw(*job_list([_undecided().summary])).split()
    drawn = draw(*job_sheet(_undecided(), NOW_NS))
    assert "115 before the restart; which is next, its first step will show" in drawn
    assert "≤ 95.50%" in drawn


def test_ratios_that_may_still_become_less_are_so_at_most() -> None:
    ledger = admin_pb2.Ledger()
    ledger.CopyFrom(LEDGER)
    assert "at most" not in draw(*ledger_sheet(ledger))
    ledger.undecided_step = 115
    drawn = draw(*ledger_sheet(ledger))
    assert "95.500% at most" in drawn
    assert "400 that count, up to step 115; which of them are made again is not known" in drawn


def test_an_incident_tells_with_which_step_the_script_went_on_by_itself() -> None:
    incident = admin_pb2.Incident(incident="j-1.1", step_before=115, step_resumed=100)
    assert "step 115 → went on with 100" in draw(*incident_list([incident]))


def test_a_job_whose_script_takes_no_snapshots_is_told_so() -> None:
    job = _undecided()
    job.cadence.Clear()
    job.cadence.reason = "none: its script does without Everstep's"
    drawn = draw(*job_sheet(job, NOW_NS))
    assert "none: its script does without Everstep's" in drawn
    assert "no snapshot yet" in drawn


def _claimed(*jobs: str, draining: bool) -> str:
    node = nodes()[0]
    del node.jobs[:]
    node.jobs.extend(jobs)
    node.claims.add(owner="operator", reason="swap the fan", since_ns=1, draining=draining)
    return "\n".join(node_lines([node], NOW_NS, hardware=False, colours=False))


def test_a_node_that_is_drained_is_neither_simply_healthy_nor_isolated() -> None:
    drains, drained = _claimed("demo", draining=True), _claimed(draining=True)
    assert "healthy, draining" in drains
    assert "draining by operator: swap the fan" in drains
    assert "healthy, drained" in drained
    assert "drained by operator: swap the fan" in drained
    assert "isolated" not in drains + drained


def test_a_node_that_is_isolated_is_not_simply_healthy() -> None:
    drawn = _claimed(draining=False)
    assert "healthy, isolated" in drawn
    assert "isolated by operator: swap the fan" in drawn


@pytest.mark.parametrize("verdict", ["", "rank 1 died", "rank 1 died: unknown", "bad node"])
def test_a_verdict_that_repeats_the_sentence_of_its_incident_stands_alone(verdict: str) -> None:
    incident = admin_pb2.Incident(incident="j-1.1", message="rank 1 died", verdict=verdict)
    drawn = " ".join(draw(*incident_list([incident])).split())
    assert drawn.count("rank 1 died") == 1
    assert verdict in drawn


def test_of_a_job_that_has_ended_no_standby_waits() -> None:
    job = admin_pb2.JobDetail()
    job.CopyFrom(JOB)
    job.standbys.add(node="node-1", ready=2)
    assert "2 ready on node-1" in draw(*job_sheet(job, NOW_NS))
    job.summary.state, job.summary.outcome = "ended", "succeeded"
    assert "2 ready on node-1" not in draw(*job_sheet(job, NOW_NS))


def test_what_held_a_job_back_is_once_in_the_cell_of_its_incident() -> None:
    said = "Rank 1 holds the job back: frozen. Its process is stopped"
    incident = admin_pb2.Incident(
        incident="j-1.1",
        message=f"train stands still, no rank has moved for 4.1 s: {said}",
        verdict=f"{said}; no node is at fault of that",
    )
    drawn = " ".join(draw(*incident_list([incident])).split())
    assert drawn.count("Rank 1") == 1
    assert "no rank has moved for 4.1 s" in drawn
    assert "no node is at fault of that" in drawn
