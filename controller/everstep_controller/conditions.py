"""Conditions of the controller, in one list; each is defined beside the code that judges it."""

from collections.abc import Mapping
from types import MappingProxyType

from everstep_common.judging.condition import Condition
from everstep_controller.core.dispatch import controller
from everstep_controller.core.nodes import (
    agent_findings,
    checks,
    health,
    quorum,
    stream_flaps,
    unanswered_orders,
)
from everstep_controller.core.planned import swaps
from everstep_controller.core.recovery import pair_tests
from everstep_controller.judging.judges import JUDGES
from everstep_controller.runtime import controller_findings

# Titles of docs/signals.md.
GROUPS: Mapping[str, tuple[Condition, ...]] = MappingProxyType(
    {
        "Nodes, compared with their peers": tuple(
            condition for judge in JUDGES for condition in judge.conditions
        ),
        "Nodes, by what happened on them": (
            checks.CHECK_FAILED,
            health.RANKS_DIE,
            swaps.SLOW_NODE,
            pair_tests.PAIR_TEST_SLOW,
            swaps.NODE_PRECURSOR,
            unanswered_orders.ORDERS_UNANSWERED,
            agent_findings.AGENT_GONE,
            agent_findings.AGENT_HUNG,
            agent_findings.PROBES_BLOCKED,
            stream_flaps.STREAM_FLAPPING,
        ),
        "The controller itself": (
            *controller_findings.CONDITIONS,
            controller.EVENT_REJECTED,
            controller.CONTROLLER_OVERLOADED,
            quorum.CONTROLLER_CUT_OFF,
        ),
    }
)
