"""The two lifecycle tables, every pair."""

import itertools

import pytest

from everstep_controller.core.jobs import lifecycle as job_lifecycle
from everstep_controller.core.jobs.lifecycle import JobEffect, JobEvent
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.timers import Overdue, Wait
from everstep_controller.core.nodes import lifecycle
from everstep_controller.core.nodes.lifecycle import NodeEffect, NodeEvent


@pytest.mark.parametrize(("state", "event"), list(itertools.product(NodeState, NodeEvent)))
def test_every_pair_of_the_node_table(state: NodeState, event: NodeEvent) -> None:
    """A pair is in the table, or ignored for a reason, or refused."""
    pair = (state, event)
    if pair in lifecycle.IGNORED:
        assert pair not in lifecycle.TRANSITIONS
        assert lifecycle.step(state, event) is None
        return
    if pair not in lifecycle.TRANSITIONS:
        with pytest.raises(lifecycle.NodeTransitionRefusedError, match=state.value):
            lifecycle.step(state, event)
        return
    assert state is not NodeState.RETIRED
    _check_node_step(state, event, lifecycle.TRANSITIONS[pair])


def _check_node_step(state: NodeState, event: NodeEvent, step: lifecycle.NodeTransition) -> None:
    if event is NodeEvent.SILENT:
        assert step.to is NodeState.LOST
    if state is NodeState.MAINTENANCE:
        assert event is NodeEvent.MAINTENANCE_OVER
    if step.to is NodeState.REPAIRING and state is not NodeState.REPAIRING:
        assert NodeEffect.CLAIM in step.effects
    if step.to is NodeState.LOST:
        assert NodeEffect.CLAIM_DEAD in step.effects
    if NodeEffect.RELEASE in step.effects:
        assert event is NodeEvent.RECHECK_PASSED


def test_what_is_ignored_of_a_node_is_ignored_for_these_reasons_only() -> None:
    by_reason: dict[str, set[tuple[NodeState, NodeEvent]]] = {}
    for pair, reason in lifecycle.IGNORED.items():
        by_reason.setdefault(reason, set()).add(pair)
    in_use = {NodeState.HEALTHY, NodeState.SUSPECT, NodeState.PROBATION}
    out = {NodeState.VALIDATING, NodeState.REPAIRING, NodeState.LOST}
    found = {NodeEvent.DEGRADED_FINDING, NodeEvent.FATAL_FINDING, NodeEvent.BLAMED}
    assert by_reason == {
        "its agent was away, and its health is what it was": {
            (state, NodeEvent.CONNECTED) for state in in_use | {NodeState.REPAIRING}
        },
        "it was in no doubt": {
            (NodeState.HEALTHY, NodeEvent.CLEARED),
            (NodeState.PROBATION, NodeEvent.CLEARED),
        },
        "its check decides, and sees what is found meanwhile": {
            (NodeState.VALIDATING, NodeEvent.CLEARED),
            (NodeState.VALIDATING, NodeEvent.DEGRADED_FINDING),
        },
        "it is in doubt already": {(NodeState.SUSPECT, NodeEvent.DEGRADED_FINDING)},
        "it takes no ranks already": {
            *itertools.product((NodeState.REPAIRING, NodeState.LOST), found),
            (NodeState.VALIDATING, NodeEvent.BLAMED),
        },
        "it is judged by what is open when it comes back": {(NodeState.LOST, NodeEvent.CLEARED)},
        "nothing of it is being repaired": {
            (state, NodeEvent.REPAIRED) for state in (in_use | out) - {NodeState.REPAIRING}
        },
        "somebody works on it, and it is checked after that": {
            (NodeState.MAINTENANCE, NodeEvent.CONNECTED)
        },
        "one window follows another": {(NodeState.MAINTENANCE, NodeEvent.MAINTENANCE_BEGUN)},
    }


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


@pytest.mark.parametrize("state", JobState)
def test_every_state_of_a_job_that_waits_has_a_deadline_or_a_reason_why_it_has_none(
    state: JobState,
) -> None:
    _check_wait(job_lifecycle.WAITS[state], waits=state is not JobState.ENDED)


@pytest.mark.parametrize("state", NodeState)
def test_every_state_of_a_node_that_waits_has_a_deadline_or_a_reason_why_it_has_none(
    state: NodeState,
) -> None:
    nobody = (NodeState.JOINING, NodeState.HEALTHY, NodeState.RETIRED)
    _check_wait(lifecycle.WAITS[state], waits=state not in nobody)


def _check_wait(wait: Wait, *, waits: bool) -> None:
    assert bool(wait.awaits) is waits
    limited = (bool(wait.deadline), wait.timer is not None, bool(wait.on_deadline))
    assert limited in ((True, True, True), (False, False, False)), "a deadline that leads nowhere"
    if wait.deadline:
        assert getattr(Settings(), wait.deadline) >= 0
        assert wait.deadline.endswith("_ns")
    if waits:
        assert wait.deadline or wait.endless
    # Who is only asked again, or may never be judged at all, needs a reason why that is enough.
    if wait.on_deadline == (Overdue.ASK_AGAIN,) or (
        wait.deadline and not getattr(Settings(), wait.deadline)
    ):
        assert wait.endless or wait.deadline == "stall_timeout_ns"


def test_what_is_ignored_is_ignored_for_these_reasons_only() -> None:
    told_late = {"told after its first steps: only the ledger takes note"}
    assert set(job_lifecycle.IGNORED.values()) == told_late
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
