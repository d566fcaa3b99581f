from everstep_controller.core.state import Claim, NodeRecord, NodeState
from everstep_controller.explanation import explain


def test_a_reason_is_told_once() -> None:
    lost = NodeRecord("n", NodeState.LOST, reason="its peers lost it")
    lost.claims = [Claim("automation", "its peers lost it", 0)]
    assert explain(lost, "") == "n is lost: its peers lost it; takes no ranks (automation)"


def test_claims_of_others_are_told_with_their_reasons() -> None:
    node = NodeRecord("n", NodeState.HEALTHY, reason="its checks passed")
    node.claims = [Claim("operator", "ann: new fan", 0)]
    node.deferred = "the budget is spent"
    assert explain(node, "ann: upgrade") == (
        "n is healthy: its checks passed; takes no ranks (operator): ann: new fan; "
        "should be isolated: the budget is spent; automation is paused: ann: upgrade"
    )
