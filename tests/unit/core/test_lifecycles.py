"""The two lifecycle tables, every pair."""

import itertools

import pytest

from everstep_controller.core.jobs import lifecycle as job_lifecycle
from everstep_controller.core.jobs.lifecycle import JobEffect, JobEvent
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
    """A pair is in the table, or ignored for a reason, or refused."""
    pair = (state, event)
    if pair in job_lifecycle.IGNORED:
        assert pair not in job_lifecycle.TRANSITIONS
        assert job_lifecycle.step(state, event) is None
        return
    if pair not in job_lifecycle.TRANSITIONS:
        with pytest.raises(job_lifecycle.TransitionRefusedError, match=state.value):
            job_lifecycle.step(state, event)
        return
    assert state is not JobState.ENDED
    _check_job_step(state, event, job_lifecycle.TRANSITIONS[pair])


def _check_job_step(state: JobState, event: JobEvent, step: job_lifecycle.Step) -> None:
    if event is JobEvent.FAULT:
        assert (step.to, step.effects) == (JobState.STOPPING, (JobEffect.STOP_MEMBERS,))
    if event is JobEvent.ADOPTED:
        # The node's own agent has seen to it that the old generation was gone.
        assert (state, step.to) == (JobState.STOPPING, JobState.STARTING)
    elif state is JobState.STOPPING:
        # Nothing new runs before the old generation is known to be gone.
        assert step.to not in job_lifecycle.ACTIVE
    if step.to is JobState.ENDED:
        assert JobEffect.CLOSE_LEDGER in step.effects
        assert JobEffect.RELEASE_NEXT in step.effects
    if JobEffect.START_MEMBERS in step.effects:
        assert event is JobEvent.STEP_CHOSEN
    assert (step.deadline is None) == (step.on_deadline is None)


def test_what_is_ignored_is_ignored_for_these_reasons_only() -> None:
    told_late = {"told after its first steps: only the ledger takes note"}
    steps = {"it makes steps, as before"}
    assert set(job_lifecycle.IGNORED.values()) == told_late | steps
    assert {state for state, _ in job_lifecycle.IGNORED} == set(job_lifecycle.STEPPING)


def test_every_state_but_the_last_can_end() -> None:
    for state in JobState:
        if state is not JobState.ENDED:
            found = job_lifecycle.step(state, JobEvent.OVER)
            assert found is not None
            assert found.to is JobState.ENDED


def test_whatever_runs_can_fail_and_whatever_has_run_can_wait_for_its_last_step() -> None:
    for state in job_lifecycle.ACTIVE:
        assert (state, JobEvent.FAULT) in job_lifecycle.TRANSITIONS
        assert (state, JobEvent.LAST_STEP_AWAITED) in job_lifecycle.TRANSITIONS


def test_every_state_of_a_job_can_be_reached() -> None:
    reached = {step.to for step in job_lifecycle.TRANSITIONS.values()}
    assert reached | {JobState.FORMING} == set(JobState)
