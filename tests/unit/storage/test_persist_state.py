"""What the controller wants in storage, and what may leave memory meanwhile."""

from everstep_agent.storage.formats.records import StepKey
from everstep_agent.storage.persist_state import ATTEMPTS_MAX, PersistState
from everstep_agent.vault.snapshots.copies import CopyKey, CopyManifest, Recoverable

_NEWER = Recoverable(1, 9)


def _copy(step: int, rank: int = 0) -> CopyManifest:
    return CopyManifest(CopyKey(1, rank, step), 4, b"hash", ())


def _wanting(*steps: int, replicas: frozenset[int] = frozenset()) -> PersistState:
    state = PersistState()
    state.apply_directive(tuple(StepKey(1, step) for step in steps), replicas)
    return state


def test_a_copy_of_a_named_step_stays_until_it_is_stored() -> None:
    state, copy = _wanting(5), _copy(5)
    assert _NEWER.frees(copy.key)
    assert not state.retaining(_NEWER).frees(copy.key)
    state.mark_persisted(copy)
    assert state.retaining(_NEWER).frees(copy.key)
    # The other rank's is not there yet.
    assert not state.retaining(_NEWER).frees(_copy(5, rank=1).key)


def test_a_replica_is_not_kept_for_storage() -> None:
    assert _wanting(5).retaining(_NEWER).frees(_copy(5).key, replica=True)


def test_a_replica_is_written_only_for_a_rank_that_is_named() -> None:
    state = _wanting(5, replicas=frozenset({1}))
    assert state.should_persist(_copy(5, rank=1).key, replica=True)
    assert not state.should_persist(_copy(5, rank=2).key, replica=True)


def test_a_step_that_failed_too_often_is_told_and_leaves_memory() -> None:
    state, copy = _wanting(5), _copy(5)
    attempts = [state.mark_failed(copy.key, "disk full") for _ in range(ATTEMPTS_MAX)]
    assert attempts == [False] * (ATTEMPTS_MAX - 1) + [True]
    assert state.failures == {StepKey(1, 5): "disk full"}
    assert not state.should_persist(copy.key, replica=False)
    assert state.retaining(_NEWER).frees(copy.key)


def test_a_failure_is_forgotten_when_the_controller_names_the_step_no_more() -> None:
    state = _wanting(5)
    for _ in range(ATTEMPTS_MAX):
        state.mark_failed(_copy(5).key, "disk full")
    state.apply_directive((StepKey(1, 6),), frozenset())
    assert state.failures == {}


def test_only_the_newest_stored_steps_are_told() -> None:
    state = PersistState()
    for step in range(10):
        for rank in (0, 1):
            state.mark_persisted(_copy(step, rank))
    assert {key.step for key in state.on_disk} == {6, 7, 8, 9}
    assert len(state.on_disk) == 8
