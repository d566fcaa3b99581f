"""The steps in which a node and a job are decided about: each changes what it names."""

from collections.abc import Callable
from dataclasses import fields, replace

import pytest

from everstep_controller.core.dispatch.steps import JOB_STEPS, NODE_STEPS, Step
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.state import State
from everstep_controller.core.turn import Reconciliation
from unit.core.checked_steps import CheckedCore
from unit.core.test_marks import Fleet


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_a_step_changes_nothing_but_what_it_names(seed: int) -> None:
    fleet = Fleet(seed)
    fleet.core = CheckedCore(fleet.core.state)
    for _ in range(120):
        fleet.anything()


def _names(kind: type) -> set[str]:
    return {one.name for one in fields(kind)} - {"since_ns", "reason"}


def test_what_steps_name_is_there() -> None:
    others = {
        *(f"nodes.{one}" for one in _names(NodeRecord)),
        *(f"jobs.{one}" for one in _names(JobRecord)),
        *(f"state.{one}" for one in _names(State) - {"nodes", "jobs", "timers"}),
        *("nodes", "jobs", "orders", "timers"),
    }
    for steps, own in ((NODE_STEPS, _names(NodeRecord)), (JOB_STEPS, _names(JobRecord))):
        for step in steps:
            assert set(step.changes) <= own | others, step.name
            assert len(set(step.changes)) == len(step.changes), step.name


def test_a_step_that_changes_more_is_found() -> None:
    fleet = Fleet(0)
    core, node = CheckedCore(fleet.core.state), fleet.core.state.nodes["n3"]
    turn = Reconciliation(core.state, fleet.now_ns)

    def step(change: Callable[[Reconciliation, NodeRecord], None], *named: str) -> Step[NodeRecord]:
        return replace(NODE_STEPS[0], decide=change, changes=named)

    def blame(turn: Reconciliation, node: NodeRecord) -> None:
        node.blame.reason = node.blame.reason + "x"

    def blame_another(turn: Reconciliation, node: NodeRecord) -> None:
        blame(turn, turn.state.nodes["n4"])

    def mark(turn: Reconciliation, node: NodeRecord) -> None:
        turn.mark_node(node.name)
        turn.announce(node.name, "Said", "it is said")

    core.run(step(blame, "blame"), turn, node)
    core.run(step(blame_another, "nodes.blame"), turn, node)
    core.run(step(mark), turn, node)
    with pytest.raises(AssertionError, match=r"changes \['blame'\]"):
        core.run(step(blame, "health", "nodes.blame"), turn, node)
    with pytest.raises(AssertionError, match=r"changes \['nodes.blame'\]"):
        core.run(step(blame_another, "blame"), turn, node)
    with pytest.raises(AssertionError, match=r"changes \['timers'\]"):
        core.run(step(lambda turn, node: turn.set_timer("check/n3", 1)), turn, node)


def test_only_a_job_that_waits_for_another_one_is_taken_by_the_steps_for_that() -> None:
    assert [step.name for step in JOB_STEPS if step.waiting] == ["jobs/identity"]
    assert not any(step.waiting for step in NODE_STEPS)


def test_no_step_comes_twice_and_each_says_why_it_is_where_it_is() -> None:
    for steps in (NODE_STEPS, JOB_STEPS):
        assert len({step.name for step in steps}) == len(steps)
        assert all(step.place for step in steps)
