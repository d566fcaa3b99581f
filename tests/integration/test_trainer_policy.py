"""What a script may choose about its snapshots, against an agent that skips, plans and refuses."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xxhash

import everstep
from everstep.copy_engine.memory import Copier
from everstep.rank.agent_link import AgentLink
from everstep.rank.environment import membership
from everstep.saving.snapshotter import Snapshots
from everstep.saving.step_saving import Tools
from everstep.state.plain import PlainCapture
from everstep_common.rank_messages import Begin, Commit, Reserve
from fakes.waits import wait_until
from integration.trainer_node import Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node.begin(tmp_path)
    yield node
    node.close()


def test_the_wait_for_a_slot_is_the_scripts_choice(node: Node) -> None:
    run = everstep.init(node.environ())
    state = {"a": np.zeros(1)}
    run.snapshots(state).snapshot(0)
    run.snapshots(state, wait_s=1.5).snapshot(1)
    run.snapshots(state, on_full="skip", wait_s=1.5).snapshot(2)
    assert node.heard(Begin) == [Begin(0, None), Begin(1, 1.5), Begin(2, 0.0)]


@pytest.mark.parametrize(
    "choice", [{"on_full": "wait"}, {"hash": "md5"}, {"wait_s": -1.0}, {"wait_s": float("inf")}]
)
def test_a_choice_that_does_not_exist_is_refused_at_once(choice: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        everstep.init({}).snapshots({}, **choice)  # type: ignore[arg-type]


def test_the_agent_is_not_asked_for_steps_that_it_does_not_want(node: Node) -> None:
    run = everstep.init(node.environ())
    snapshots = run.snapshots({"a": np.zeros(1)}, raises=True)
    node.agent.planned_from = 3
    assert [snapshots.snapshot(step) for step in range(5)] == [False, False, False, True, True]
    assert node.heard(Begin) == [Begin(0), Begin(3), Begin(4)]
    assert run.unsaved_steps == 0


def test_another_agent_may_want_other_steps(node: Node) -> None:
    run = everstep.init(node.environ())
    snapshots = run.snapshots({"a": np.zeros(1)})
    node.agent.planned_from = 1_000_000
    assert not snapshots.snapshot(0)
    node.restart()

    def saved() -> bool:
        run.step(0)
        return snapshots.snapshot(1)

    wait_until(saved)


def test_a_script_can_have_failures_raised(node: Node) -> None:
    arrays: list[object] = [np.zeros(1)]
    run = everstep.init(node.environ())
    snapshots = run.snapshots({"a": lambda: arrays[0]}, raises=True)
    node.agent.skip_reason = "every slot is pinned"
    with pytest.raises(everstep.SnapshotError, match="every slot is pinned"):
        snapshots.snapshot(0)
    node.agent.skip_reason = ""
    arrays[0] = "no array"
    with pytest.raises(everstep.SnapshotError, match="shard 'a'") as raised:
        snapshots.snapshot(1)
    assert isinstance(raised.value.__cause__, everstep.StateError)
    assert run.unsaved_steps == 2


def test_skips_that_the_script_allows_are_not_raised(node: Node) -> None:
    run = everstep.init(node.environ())
    snapshots = run.snapshots({"a": np.zeros(1)}, raises=True, on_full="skip")
    node.agent.skip_reason = "every slot is pinned"
    assert not snapshots.snapshot(0)
    assert run.unsaved_steps == 1


def test_a_failure_beside_training_is_raised_when_it_is_waited_for(node: Node) -> None:
    run = everstep.init(node.environ())
    snapshots = run.snapshots({"a": np.zeros(1)}, raises=True, overlap=True)
    node.agent.skip_reason = "every slot is pinned"
    assert snapshots.snapshot(0)
    with pytest.raises(everstep.SnapshotError, match="every slot is pinned"):
        snapshots.join()


def test_a_state_that_grows_a_little_keeps_its_slots(node: Node) -> None:
    grows = bytearray(4096)
    snapshots = everstep.init(node.environ()).snapshots({"a": lambda: grows})
    for step in range(20):
        assert snapshots.snapshot(step)
        grows = bytearray(len(grows) + 100)
    assert len(node.heard(Reserve)) == 1


def snapshots_of(name: str, link: AgentLink) -> Snapshots:
    return Snapshots(PlainCapture({name: np.zeros(1)}), link, Tools(Copier(1)))


def test_slots_of_an_earlier_reservation_are_not_written_any_more(node: Node) -> None:
    member = membership(node.environ())
    assert member
    link = AgentLink(member)
    assert link.attach(30.0)
    first, second = snapshots_of("a", link), snapshots_of("b", link)
    for step, snapshots in enumerate((first, second, first, first)):
        assert snapshots.snapshot(step)
    assert len(node.heard(Reserve)) == 3


def test_slots_are_there_before_the_first_step(node: Node) -> None:
    snapshots = everstep.init(node.environ()).snapshots({"a": np.zeros(1)})
    snapshots.restore()
    assert snapshots.snapshot(0)
    assert len(node.heard(Reserve)) == 1


def test_a_restore_waits_for_no_slots_and_the_first_snapshot_does(node: Node) -> None:
    run = everstep.init(node.environ())
    snapshots = run.snapshots({"a": np.zeros(1)})
    node.agent.slots_made.clear()
    assert snapshots.restore() is None
    wait_until(lambda: bool(node.heard(Reserve)))
    run.step(0)  # does not wait either
    saved: list[bool] = []
    saving = threading.Thread(target=lambda: saved.append(snapshots.snapshot(1)))
    saving.start()
    assert node.heard(Begin) == []
    node.agent.slots_made.set()
    saving.join(20)
    assert saved == [True]
    assert snapshots.take_stall_ns() > 0


def test_slots_that_could_not_be_had_ahead_are_asked_for_again(node: Node) -> None:
    snapshots = everstep.init(node.environ()).snapshots({"a": np.zeros(1)})
    node.agent.slots_made.clear()
    snapshots.restore()
    wait_until(lambda: bool(node.heard(Reserve)))
    node.agent.hang_up()
    node.agent.slots_made.set()
    wait_until(lambda: snapshots.snapshot(0))
    assert len(node.heard(Reserve)) == 1


def test_other_snapshots_of_the_process_do_not_lose_their_slots_to_those_they_replace(
    node: Node,
) -> None:
    run = everstep.init(node.environ())
    run.snapshots({"a": np.zeros(1)}).restore()
    newer = run.snapshots({"a": np.zeros(1), "b": np.zeros(1)})
    newer.restore()
    assert newer.snapshot(0)
    assert len(node.heard(Reserve)) == 2


@pytest.mark.parametrize("overlap", [False, True])
def test_the_trainers_own_hash_goes_with_each_shard(node: Node, overlap: bool) -> None:
    state = {"a": np.arange(1000.0), "none": np.zeros(0), "b": np.ones(3)}
    run = everstep.init(node.environ())
    snapshots = run.snapshots(state, hash="trainer", overlap=overlap)
    snapshots.snapshot(0)
    snapshots.join()
    (commit,) = node.heard(Commit)
    assert isinstance(commit, Commit)
    assert [entry.digest for entry in commit.entries] == [
        xxhash.xxh3_128_digest(state["a"].tobytes()),
        b"",
        xxhash.xxh3_128_digest(state["b"].tobytes()),
    ]


def _commits(node: Node) -> list[Commit]:
    return [one for one in node.heard(Commit) if isinstance(one, Commit)]


def test_what_was_granted_ahead_is_not_asked_for(node: Node) -> None:
    run = everstep.init(node.environ())
    snapshots = run.snapshots({"a": np.zeros(1)})
    node.agent.grants_ahead = True
    assert [snapshots.snapshot(step) for step in (0, 1, 2, 5)] == [True] * 4
    assert snapshots.join()
    # A slot that is asked for is the first; the grant after step 2 was for step 3.
    assert [(one.step, one.slot) for one in _commits(node)] == [(0, 0), (1, 1), (2, 1), (5, 0)]


def test_a_commit_that_is_refused_counts_at_the_next_boundary(node: Node) -> None:
    run = everstep.init(node.environ())
    snapshots = run.snapshots({"a": np.zeros(1)})
    node.agent.grants_ahead = True
    assert snapshots.snapshot(0)
    node.agent.refuse_commit = "a restart is planned"
    assert snapshots.snapshot(1)
    assert not snapshots.join()
    assert run.unsaved_steps == 1
    node.agent.refuse_commit = ""
    assert snapshots.snapshot(2)
    assert snapshots.join()
    assert run.unsaved_steps == 1
    # What the agent had refused it does not know: the shards are told again.
    assert [one.as_before for one in _commits(node)] == [False, True, False]


def test_who_wants_errors_waits_for_each_commit(node: Node) -> None:
    run = everstep.init(node.environ())
    snapshots = run.snapshots({"a": np.zeros(1)}, raises=True)
    assert snapshots.snapshot(0)
    node.agent.refuse_commit = "a restart is planned"
    with pytest.raises(everstep.SnapshotError, match="a restart is planned"):
        snapshots.snapshot(1)
