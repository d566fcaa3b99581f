"""Snapshots beside training: one step or nothing, whatever training and the agent do meanwhile."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import everstep
from everstep_common.rank_messages import Begin, Reserve
from fakes.waits import wait_until
from integration.trainer_node import Node

# Large enough for several pieces.
SIZE = 48 * 1024 * 1024


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node.begin(tmp_path)
    yield node
    node.close()


def restored(node: Node, step: int, like: np.ndarray) -> np.ndarray:
    """Return what a new process gets back for a step."""
    node.vault.restore_step = step
    target = np.zeros_like(like)
    assert everstep.init(node.environ()).snapshots({"a": target}).restore() == step
    return target


def test_the_state_may_change_as_soon_as_it_has_settled(node: Node) -> None:
    state = np.zeros(SIZE, dtype=np.uint8)
    snapshots = everstep.init(node.environ()).snapshots({"a": state}, overlap=True)
    snapshots.restore()
    for step in range(5):
        snapshots.settle()
        state += 1
        wait_until(lambda now=step: snapshots.snapshot(now))  # type: ignore[misc]  # once a slot is free
    assert snapshots.join()
    assert sorted(node.vault.saved) == [0, 1, 2, 3, 4]
    for step in (0, 4):
        assert (restored(node, step, state) == step + 1).all()


def test_progress_is_told_while_the_agent_has_not_answered_the_snapshot(node: Node) -> None:
    run = everstep.init(node.environ())
    snapshots = run.snapshots({"a": np.zeros(8)}, overlap=True)
    snapshots.restore()
    with node.agent.hung():
        assert snapshots.snapshot(0)
        run.step(0)
    assert snapshots.join()
    wait_until(lambda: node.vault.progress == [(0, 0)])
    assert run.unsaved_steps == 0


def test_an_agent_that_dies_during_the_copy_costs_that_step_only(node: Node) -> None:
    run = everstep.init(node.environ())
    state = np.zeros(1000)
    snapshots = run.snapshots({"a": state}, overlap=True)
    snapshots.restore()
    with node.agent.hung():
        assert snapshots.snapshot(0)
        node.agent.hang_up()
    assert not snapshots.join()
    assert run.unsaved_steps == 1
    assert 0 not in node.vault.saved

    node.restart()
    state += 1.0
    wait_until(lambda: snapshots.snapshot(1) and snapshots.join())
    assert (restored(node, 1, state) == 1.0).all()


def test_an_agent_that_restarted_during_the_copy_is_not_given_the_old_slot(node: Node) -> None:
    run = everstep.init(node.environ())
    snapshots = run.snapshots({"a": np.zeros(8)}, overlap=True)
    snapshots.restore()
    assert snapshots.snapshot(0)
    assert snapshots.join()
    node.restart()
    run.step(0)
    run.step(0)
    wait_until(lambda: run.active and snapshots.snapshot(1) and snapshots.join())
    assert set(node.vault.saved) >= {0, 1}


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_during_the_copy_leaves_it_alone(node: Node) -> None:
    state = np.full(SIZE, 7, dtype=np.uint8)
    snapshots = everstep.init(node.environ()).snapshots({"a": state}, overlap=True)
    snapshots.restore()
    with node.agent.hung():
        assert snapshots.snapshot(0)
        child = os.fork()
        if child == 0:
            snapshots.settle()
            silent = not snapshots.join() and not snapshots.snapshot(1)
            os._exit(0 if silent else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert snapshots.join()
    assert (restored(node, 0, state) == 7).all()


SCRIPT = """
import sys
import numpy as np
import everstep

state = np.full(48 * 1024 * 1024, 9, dtype=np.uint8)
snapshots = everstep.snapshots({"a": state}, overlap=True)
snapshots.restore()
snapshots.snapshot(0)
everstep.step(0)
if sys.argv[1] == "raise":
    raise RuntimeError("the loss is NaN")
"""


def run_script(node: Node, way: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, way],
        env=dict(os.environ) | node.environ(),
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(("way", "code"), [("end", 0), ("raise", 1)])
def test_a_process_that_ends_still_saves_its_last_step(node: Node, way: str, code: int) -> None:
    assert run_script(node, way).wait(timeout=60) == code
    assert (restored(node, 0, np.zeros(SIZE, dtype=np.uint8)) == 9).all()


def test_a_process_that_ends_waits_for_an_agent_that_stands_still(node: Node) -> None:
    node.agent.slots_made.clear()
    process = run_script(node, "end")
    wait_until(lambda: bool(node.heard(Reserve)))
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=3)
    node.agent.slots_made.set()
    assert process.wait(timeout=60) == 0
    assert (restored(node, 0, np.zeros(SIZE, dtype=np.uint8)) == 9).all()


def test_a_process_that_ends_does_not_wait_for_a_hung_agent_for_ever(node: Node) -> None:
    node.agent.silent = (Begin,)
    process = run_script(node, "end")
    assert process.wait(timeout=60) == 0
    assert 0 not in node.vault.saved


def test_a_state_that_cannot_be_saved_is_counted_and_raises_nothing(node: Node) -> None:
    arrays: list[object] = [np.zeros(4)]
    run = everstep.init(node.environ())
    snapshots = run.snapshots({"a": lambda: arrays[0]}, overlap=True)
    snapshots.restore()
    arrays[0] = "no array"
    assert not snapshots.snapshot(0)
    arrays[0] = np.zeros(4)
    assert snapshots.snapshot(1)
    assert snapshots.join()
    assert run.unsaved_steps == 1


def test_an_unknown_agent_is_not_waited_for(tmp_path: Path) -> None:
    agent_path = tmp_path / "agent.sock"
    environ = {"EVERSTEP_SOCKET": str(agent_path), "EVERSTEP_GENERATION": "1"}
    node = Node.begin(tmp_path)
    run = everstep.init(node.environ() | environ)
    node.close()
    snapshots = run.snapshots({"a": np.zeros(1)}, overlap=True)
    for step in range(100):
        snapshots.snapshot(step)
        snapshots.settle()
    assert not snapshots.join()
    assert run.unsaved_steps == 100
