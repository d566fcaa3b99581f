"""What scripts do by mistake, or by accident: said once, in one sentence, and training goes on."""

import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import everstep
from fakes.waits import wait_until
from integration.trainer_node import Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node.begin(tmp_path)
    yield node
    node.close()


def test_a_process_has_one_state_and_the_older_snapshots_say_so(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    run = everstep.init(node.environ())
    older, newer = run.snapshots({"a": np.zeros(1)}), run.snapshots({"b": np.zeros(1)})
    assert not older.snapshot(0)
    assert newer.snapshot(0)
    assert list(node.vault.saved[0]) == ["b"]
    assert "name all of it in one mapping" in caplog.text


@pytest.mark.parametrize("step", [np.int64(3), np.array(3), 3])
def test_a_step_may_be_any_librarys_whole_number(node: Node, step: int) -> None:
    run = everstep.init(node.environ())
    snapshots = run.snapshots({"a": np.zeros(1)})
    assert snapshots.snapshot(step)
    run.step(step)
    wait_until(lambda: node.vault.progress == [(0, 3)])
    assert list(node.vault.saved) == [3]


@pytest.mark.parametrize("step", [2.0, "5", None, -1, 2**63, np.zeros(2)])
def test_what_is_no_step_is_said_once_and_costs_nothing_else(
    node: Node, caplog: pytest.LogCaptureFixture, step: int
) -> None:
    run = everstep.init(node.environ())
    snapshots = run.snapshots({"a": np.zeros(1)})
    for _ in range(3):
        assert not snapshots.snapshot(step)
        run.step(step)
    assert caplog.text.count("not saved: step: expected a") == 1
    assert snapshots.snapshot(1)


def test_a_state_that_is_saved_every_other_time_does_not_fill_the_log(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    snapshots = everstep.init(node.environ()).snapshots({"a": np.zeros(1)}, on_full="skip")
    for step in range(100):
        node.agent.skip_reason = f"{step} copies wait" if step % 2 else ""
        snapshots.snapshot(step)
    assert len(caplog.records) < 10


class AlarmError(BaseException):
    """What a signal's handler raises."""


def interrupt(number: int, frame: object) -> None:
    raise AlarmError


def test_an_answer_that_was_not_waited_for_is_not_taken_for_the_next(node: Node) -> None:
    state = np.zeros(1)
    run = everstep.init(node.environ())
    snapshots = run.snapshots({"a": state})
    assert snapshots.snapshot(0)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with node.agent.hung():
            # Long enough to get there on a busy machine.
            signal.setitimer(signal.ITIMER_REAL, 1.0)
            with pytest.raises(AlarmError):
                snapshots.snapshot(1)
    finally:
        signal.signal(signal.SIGALRM, before)
    state += 1.0
    assert snapshots.snapshot(2)
    assert run.unsaved_steps == 0
    node.vault.restore_step = 2
    again = np.zeros(1)
    assert everstep.init(node.environ()).snapshots({"a": again}).restore() == 2
    assert again[0] == 1.0


class Reentrant:
    """An object that takes a snapshot while it is asked for its state."""

    def __init__(self) -> None:
        self.snapshots: everstep.Snapshots | None = None
        self.saved_within = True

    def state_dict(self) -> dict[str, object]:
        if self.snapshots is not None:
            self.saved_within = self.snapshots.snapshot(7)
        return {"a": np.zeros(3)}

    def load_state_dict(self, state: object) -> None:
        pass


def test_two_calls_at_once_do_not_mix_their_steps(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    thing = Reentrant()
    snapshots = everstep.init(node.environ()).snapshots({"thing": thing})
    assert snapshots.restore() is None
    thing.snapshots = snapshots
    assert snapshots.snapshot(6)
    assert not thing.saved_within
    assert list(node.vault.saved) == [6]
    assert "another call of it was under way" in caplog.text
