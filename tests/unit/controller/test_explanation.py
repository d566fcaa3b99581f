from everstep_controller.api.admin.queries import explain, judged_cause
from everstep_controller.core.accounting.ledger import Ledger
from everstep_controller.core.fleet.incidents import keep_incident
from everstep_controller.core.model.incident import IncidentKind
from everstep_controller.core.model.job import Cause, JobIncident, JobRecord, JobSpec
from everstep_controller.core.model.node import Claim, NodeRecord, NodeState
from everstep_controller.core.model.state import State


def test_a_reason_is_told_once() -> None:
    lost = NodeRecord("n", NodeState.LOST, reason="its peers lost it")
    lost.isolation.claims = [Claim("automation", "its peers lost it", 0)]
    assert explain(lost, "") == "n is lost: its peers lost it; takes no ranks (automation)"


def test_claims_of_others_are_told_with_their_reasons() -> None:
    node = NodeRecord("n", NodeState.HEALTHY, reason="its checks passed")
    node.isolation.claims = [Claim("operator", "ann: new fan", 0)]
    node.isolation.deferred = "the budget is spent"
    assert explain(node, "ann: upgrade") == (
        "n is healthy: its checks passed; takes no ranks (operator): ann: new fan; "
        "should be isolated: the budget is spent; automation is paused: ann: upgrade"
    )


def test_why_a_node_is_no_spare_is_told() -> None:
    node = NodeRecord("n", NodeState.HEALTHY, reason="its checks passed")
    node.spare_check.failed = "probe nvml: no answer"
    assert explain(node, "") == (
        "n is healthy: its checks passed; n is no spare: its check failed: probe nvml: no answer"
    )


def test_the_judgement_of_an_open_incident_is_told_until_it_is_over() -> None:
    job = JobRecord(
        "j-5",
        "j",
        JobSpec(uid=1, token_sha256="t", nodes_min=1, nodes_max=1),
        ledger=Ledger(0),
        reason="its ranks start",
    )
    incident = JobIncident(
        id="j-5.1",
        kind=IncidentKind.JOB,
        subjects=["j-5"],
        onset_ns=5,
        cause=Cause.PROCESS,
        node="n",
        message="rank 0 on n exited 1",
        step_before=4,
    )
    state = State()
    keep_incident(state, job, incident)
    incident.verdict = "only a repetition tells"
    told = "j is forming: its ranks start; the fault was judged: only a repetition tells"
    assert explain(job, "", judged_cause(state, job)) == told
    incident.over_ns = 9
    assert explain(job, "", judged_cause(state, job)) == "j is forming: its ranks start"
