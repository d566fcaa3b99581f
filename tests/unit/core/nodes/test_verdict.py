"""Verdicts on silent nodes, from the signs alone."""

import pytest

from everstep_controller.core.nodes.verdict import Liveness, Patience, Signs, judge

_S = 1_000_000_000
_PATIENCE = Patience(silence_ns=5 * _S, few_witnesses_ns=60 * _S, network_ns=60 * _S)


@pytest.mark.parametrize(
    ("claimed", "expected"), [(False, Liveness.LOST), (True, Liveness.DOUBTFUL)]
)
def test_a_node_for_whose_name_another_agent_asks_is_not_lost_yet(
    claimed: bool, expected: Liveness
) -> None:
    signs = Signs(
        connected=False,
        since_ns=100 * _S,
        asked=True,
        denied=("a", "b", "c"),
        witnesses=3,
        claimed=claimed,
    )
    assert judge(signs, _PATIENCE, 106 * _S).liveness is expected
