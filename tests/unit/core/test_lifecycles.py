"""The two lifecycle tables, every pair."""

import itertools

import pytest

from everstep_controller.core.jobs import lifecycle as job_lifecycle
from everstep_controller.core.jobs.lifecycle import JobEvent
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.nodes import lifecycle
from everstep_controller.core.nodes.lifecycle import NodeEffect, NodeEvent


@pytest.mark.parametrize(("state", "event"), list(itertools.product(NodeState, NodeEvent)))
def test_every_pair_of_the_node_table(state: NodeState, event: NodeEvent) -> None:
    step = lifecycle.step(state, event)
    if (state, event) not in lifecycle.TRANSITIONS:
        assert step == lifecycle.Step(state)
    if state is NodeState.RETIRED:
        assert step.to is NodeState.RETIRED
    if event is NodeEvent.SILENT and state not in (NodeState.RETIRED, NodeState.MAINTENANCE):
        assert step.to is NodeState.LOST
    if state is NodeState.MAINTENANCE and event not in (
        NodeEvent.MAINTENANCE_OVER,
        NodeEvent.NOT_BACK,
    ):
        assert step == lifecycle.Step(NodeState.MAINTENANCE)
    if step.to is NodeState.REPAIRING and state is not NodeState.REPAIRING:
        assert NodeEffect.CLAIM in step.effects
    if step.to is NodeState.LOST and state is not NodeState.LOST:
        assert NodeEffect.CLAIM_DEAD in step.effects
    if NodeEffect.RELEASE in step.effects:
        assert event is NodeEvent.RECHECK_PASSED


def test_no_node_becomes_usable_again_without_a_check() -> None:
    for (state, event), step in lifecycle.TRANSITIONS.items():
        if state in (
            NodeState.REPAIRING,
            NodeState.LOST,
            NodeState.JOINING,
            NodeState.MAINTENANCE,
        ):
            away = (NodeState.VALIDATING, NodeState.LOST, NodeState.MAINTENANCE)
            assert step.to in away, (state, event)


@pytest.mark.parametrize(("state", "event"), list(itertools.product(JobState, JobEvent)))
def test_every_pair_of_the_job_table(state: JobState, event: JobEvent) -> None:
    to = job_lifecycle.step(state, event)
    if state is JobState.ENDED:
        assert to is JobState.ENDED
    if event is JobEvent.FAULT and state in job_lifecycle.ACTIVE:
        assert to is JobState.STOPPING
    if event is JobEvent.ADOPTED:
        # The node's own agent has seen to it that the old generation was gone.
        assert to is (JobState.STARTING if state is JobState.STOPPING else state)
    elif state is JobState.STOPPING:
        # Nothing new runs before the old generation is known to be gone.
        assert to in (
            JobState.STOPPING,
            JobState.REPLANNING,
            JobState.WAITING_CAPACITY,
            JobState.ENDED,
        )


def test_every_state_but_the_last_can_end() -> None:
    for state in JobState:
        assert job_lifecycle.step(state, JobEvent.OVER) is JobState.ENDED
