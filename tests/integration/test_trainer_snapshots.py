"""The SDK against an agent that answers, refuses, skips, hangs, dies and comes back."""

import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import everstep
from everstep.copy_engine.memory import Copier
from everstep.rank.agent_link import AgentLink
from everstep.rank.environment import membership
from everstep.saving.policy import Deadlines
from everstep.saving.snapshotter import Snapshots
from everstep.saving.step_saving import Tools
from everstep.state.plain import PlainCapture
from everstep_common.rank_messages import Commit, Reserve
from fakes.waits import wait_until
from integration.trainer_agent import TrainerAgent
from integration.trainer_node import Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node.begin(tmp_path)
    yield node
    node.close()


def test_what_was_saved_comes_back_into_the_same_arrays(node: Node) -> None:
    weights, counts = np.arange(10_000.0).reshape(100, 100), np.arange(7, dtype=np.int32)
    run = everstep.init(node.environ())
    snapshots = run.snapshots({"weights": weights, "counts": lambda: counts})
    assert snapshots.restore() is None
    assert snapshots.snapshot(4)
    run.step(4)
    wait_until(lambda: node.vault.progress == [(0, 4)])

    node.vault.generation, node.vault.restore_step = 2, 4
    empty, none = np.zeros_like(weights), np.zeros_like(counts)
    again = everstep.init(node.environ())
    assert again.restore_step == 4
    assert again.snapshots({"counts": none, "weights": empty}).restore() == 4
    assert np.array_equal(empty, weights)
    assert np.array_equal(none, counts)


def test_a_shard_of_another_shape_is_not_restored_at_all(node: Node) -> None:
    run = everstep.init(node.environ())
    saved = run.snapshots({"a": np.ones(4), "b": np.ones(8)})
    saved.restore()
    saved.snapshot(0)

    node.vault.restore_step = 0
    first = np.zeros(4)
    again = everstep.init(node.environ()).snapshots({"a": first, "b": np.zeros((2, 4))})
    with pytest.raises(everstep.RestoreError, match="shard 'b' was saved as") as raised:
        again.restore()
    # What its user reads: his own line, ours that he called, and the sentence.
    assert len(raised.traceback) == 2
    assert not first.any()


def test_a_failed_restore_raises_with_the_agents_reason(node: Node) -> None:
    node.agent.refuse_restore = "no verified copy of shard 'a' could be reached"
    snapshots = everstep.init(node.environ()).snapshots({"a": np.zeros(1)})
    with pytest.raises(everstep.RestoreError, match="no verified copy"):
        snapshots.restore()


def test_an_older_generation_is_refused(node: Node) -> None:
    node.vault.generation = 2
    with pytest.raises(everstep.RefusedError, match="running generation"):
        everstep.init(node.environ(EVERSTEP_GENERATION="1"))


def test_a_skipped_step_is_counted_and_training_goes_on(node: Node) -> None:
    node.agent.skip_reason = "every slot is pinned"
    run = everstep.init(node.environ())
    snapshots = run.snapshots({"a": np.zeros(1)})
    snapshots.restore()
    assert not snapshots.snapshot(0)
    node.agent.skip_reason = ""
    assert snapshots.snapshot(1)
    assert run.unsaved_steps == 1


def test_snapshots_go_on_after_a_restart_of_the_agent(node: Node) -> None:
    run = everstep.init(node.environ())
    state = np.zeros(1000)
    snapshots = run.snapshots({"a": state})
    snapshots.restore()
    assert snapshots.snapshot(0)

    node.agent.close()
    assert not snapshots.snapshot(1)
    run.step(1)
    node.agent = TrainerAgent(node.path, node.vault)
    state += 1.0
    wait_until(lambda: snapshots.snapshot(2))

    node.vault.restore_step = 2
    restored = np.zeros(1000)
    assert everstep.init(node.environ()).snapshots({"a": restored}).restore() == 2
    assert restored.all()


def test_a_hung_agent_costs_its_deadline_once(node: Node) -> None:
    member = membership(node.environ())
    assert member
    link = AgentLink(member)
    assert link.attach(30.0)
    state = PlainCapture({"a": np.zeros(1)})
    limits = Deadlines(begin_s=2.0, commit_s=2.0)
    snapshots = Snapshots(state, link, Tools(Copier(1)), deadlines=limits)
    snapshots.restore()
    assert snapshots.snapshot(0)
    with node.agent.hung():
        started = time.monotonic()
        saved = [snapshots.snapshot(step) for step in range(1, 1000)]
        assert time.monotonic() - started < 20.0
    assert not any(saved)
    assert snapshots.unsaved_steps == 999


def test_training_from_the_beginning_does_not_need_the_agent(tmp_path: Path) -> None:
    environ = {"EVERSTEP_SOCKET": str(tmp_path / "none"), "EVERSTEP_GENERATION": "1"}
    member = membership(environ | {"EVERSTEP_RESTORE_STEP": "none"})
    assert member
    tools, limits = Tools(Copier(1)), Deadlines(restore_s=0.1, fresh_s=0.1)
    state = PlainCapture({"a": np.zeros(1)})
    fresh = Snapshots(state, AgentLink(member), tools, deadlines=limits)
    assert fresh.restore() is None
    link = AgentLink(replace(member, starts_fresh=False))
    unknown = Snapshots(state, link, tools, deadlines=limits)
    with pytest.raises(everstep.RestoreError, match="did not answer"):
        unknown.restore()


def test_slots_are_made_from_the_first_sight_of_the_state_and_no_restore_waits_for_them(
    node: Node,
) -> None:
    node.agent.slow = True
    node.agent.slots_made.clear()
    run = everstep.init(node.environ(EVERSTEP_RESTORE_STEP="none"))
    state = np.zeros(1000)
    snapshots = run.snapshots({"a": state})
    wait_until(lambda: bool(node.heard(Reserve)))
    assert snapshots.restore() is None
    node.agent.slots_made.set()
    assert snapshots.snapshot(0)
    assert not node.heard(Reserve)


class _Heard(logging.Handler):
    """What is logged; slots come when it is said that training waits for them."""

    def __init__(self, slots_made: threading.Event) -> None:
        super().__init__()
        self.slots_made = slots_made
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
        if "waits for memory" in self.said[-1]:
            self.slots_made.set()


def test_training_that_waits_for_memory_says_so_while_it_does(node: Node) -> None:
    node.agent.slow = True
    node.agent.slots_made.clear()
    heard, log = _Heard(node.agent.slots_made), logging.getLogger("everstep")
    log.addHandler(heard)
    try:
        run = everstep.init(node.environ(EVERSTEP_RESTORE_STEP="none"))
        assert run.snapshots({"a": np.zeros(1000)}).snapshot(0)
    finally:
        log.removeHandler(heard)
    (waits, goes_on) = heard.said
    assert waits.startswith("training waits for memory: the agent is making this process's slots, ")
    assert goes_on.startswith("training waited ")


def test_an_agent_that_is_slow_is_not_said_to_stand_still(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.agent.slow = True
    node.agent.slots_made.clear()
    member = membership(node.environ())
    assert member
    link = AgentLink(member)
    assert link.attach(30.0)
    state, limits = PlainCapture({"a": np.zeros(1)}), Deadlines(reserve_s=1.5)
    snapshots = Snapshots(state, link, Tools(Copier(1)), deadlines=limits)
    assert not snapshots.snapshot(0)
    assert not snapshots.snapshot(1)
    (said,) = [line for line in caplog.messages if line.startswith("steps are not saved")]
    assert "the agent still works on what it was asked before" in said
    assert "does not answer" not in caplog.text
    node.agent.slots_made.set()
    wait_until(lambda: snapshots.snapshot(2))


def test_what_keeps_slots_from_being_made_early_is_said(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> np.ndarray:
        raise ZeroDivisionError("of the script's own")

    run = everstep.init(node.environ(EVERSTEP_RESTORE_STEP="none"))
    run.snapshots({"a": broken})
    told = "no memory yet for the snapshots of this state: ZeroDivisionError: of the script's own"
    assert told in caplog.text


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_data_loader_does_not_speak_for_its_parent(node: Node) -> None:
    run = everstep.init(node.environ())
    snapshots = run.snapshots({"a": np.zeros(1)})
    snapshots.restore()
    assert snapshots.snapshot(0)
    child = os.fork()
    if child == 0:
        silent = not run.active and not snapshots.snapshot(1) and snapshots.restore() is None
        os._exit(0 if silent else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run.active
    assert snapshots.snapshot(1, last=True)
    assert set(node.vault.saved) == {0, 1}


def test_progress_does_not_wait_for_an_agent_that_does_not_read(node: Node) -> None:
    run = everstep.init(node.environ())
    with node.agent.hung():
        started = time.monotonic()
        for step in range(20_000):
            run.step(step)
        # A wait of a millisecond in each step would take longer.
        assert time.monotonic() - started < 20.0


def test_what_a_state_consists_of_is_told_once(node: Node) -> None:
    weights = np.arange(16.0)
    snapshots = everstep.init(node.environ()).snapshots({"weights": weights})
    snapshots.restore()
    assert snapshots.snapshot(0)
    assert snapshots.snapshot(1, last=True)
    said = [message for message in _heard(node) if isinstance(message, Commit)]
    assert [(commit.as_before, len(commit.entries)) for commit in said] == [(False, 1), (True, 0)]
    assert node.vault.saved[1].keys() == node.vault.saved[0].keys()


def _heard(node: Node) -> list[object]:
    heard: list[object] = []
    while not node.agent.from_trainer.empty():
        heard.append(node.agent.from_trainer.get())
    return heard
