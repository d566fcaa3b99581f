"""Who may move ``latest``, and what may be removed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.storage.formats.latest_pointer import (
    PointerMove,
    decide_move,
    read_pointer,
    removable_steps,
)
from everstep_agent.storage.formats.records import LatestPointer, StepKey, step_folder
from everstep_common.reports import StoredStep


def _stored(generation: int, step: int) -> StoredStep:
    return StoredStep(generation, step, 2, f"{step:04x}", 100)


def _latest(by: int, generation: int, step: int) -> LatestPointer:
    moved = decide_move(None, by, by, _stored(generation, step)).content
    assert moved is not None
    return moved


def test_the_first_step_is_pointed_to() -> None:
    latest = _latest(1, 1, 5)
    assert (latest.generation, latest.target) == (1, StepKey(1, 5))
    assert latest.folder == step_folder(StepKey(1, 5)) == "gen-1/step-5"


def test_an_older_generation_is_refused_whatever_its_step() -> None:
    moved = decide_move(_latest(2, 1, 5), 2, 1, _stored(1, 900))
    assert moved == PointerMove(None, "generation 2 has taken over from 1", refused=True)


def test_a_generation_that_only_has_a_folder_fences_too() -> None:
    assert decide_move(None, 3, 2, _stored(2, 9)).refused


def test_a_new_generation_goes_back_to_the_step_it_begins_from() -> None:
    moved = decide_move(_latest(1, 1, 100), 2, 2, _stored(1, 90))
    assert moved.content is not None
    assert (moved.content.generation, moved.content.target) == (2, StepKey(1, 90))


def test_a_generation_without_a_step_leaves_the_step_and_fences() -> None:
    now = _latest(1, 1, 100)
    fenced = decide_move(now, 2, 2, None).content
    assert fenced == replace(now, generation=2)
    assert decide_move(fenced, 2, 1, _stored(1, 200)).refused


def test_a_first_generation_without_a_step_fences_too() -> None:
    fenced = decide_move(None, 1, 1, None).content
    assert fenced == LatestPointer(generation=1)
    moved = decide_move(fenced, 1, 1, _stored(1, 5)).content
    assert moved is not None
    assert moved.target == StepKey(1, 5)


def test_within_a_generation_it_goes_forward_only() -> None:
    assert decide_move(_latest(2, 2, 7), 2, 2, _stored(2, 6)).content is None
    assert not decide_move(_latest(2, 2, 7), 2, 2, _stored(2, 6)).refused


def test_doing_it_again_changes_nothing() -> None:
    assert decide_move(_latest(2, 2, 7), 2, 2, _stored(2, 7)).content is None


def test_a_target_of_a_later_generation_than_the_speaker_is_refused() -> None:
    assert decide_move(None, 1, 1, _stored(2, 1)).refused


_KEYS = st.builds(StepKey, st.integers(1, 4), st.integers(0, 5))


@given(
    st.lists(_KEYS),
    st.lists(_KEYS),
    _KEYS,
    st.integers(0, 2),
    st.integers(0, 9),
    st.none() | _KEYS,
)
def test_what_is_kept_pointed_to_or_being_written_is_never_removed(
    found: list[StepKey],
    keep: list[StepKey],
    target: StepKey,
    later: int,
    whole: int,
    restored: StepKey | None,
) -> None:
    latest = _latest(target.generation + later, target.generation, target.step)
    gone = removable_steps(found, keep, keep[:whole], latest, restored)
    assert set(gone) <= set(found) - set(keep) - {target}
    for key in gone:
        assert key.generation < latest.generation or key < target
        if key.generation != latest.generation:
            assert restored is not None
            assert key.step <= restored.step
    if len({*keep[:whole], target}) < 2:
        assert not gone


def test_what_is_newer_than_what_was_restored_stays_until_a_later_one_was() -> None:
    keep = [StepKey(1, 80), StepKey(1, 90)]
    found = [*keep, StepKey(1, 70), StepKey(1, 100), StepKey(2, 95)]
    latest = _latest(2, 1, 90)
    assert removable_steps(found, keep, keep, latest, StepKey(1, 90)) == [StepKey(1, 70)]
    kept = [StepKey(2, 110), StepKey(2, 120)]
    later = removable_steps([*found, *kept], kept, kept, _latest(3, 2, 120), StepKey(2, 120))
    assert later == sorted(found)


def test_a_generation_that_restored_nothing_removes_only_what_it_wrote() -> None:
    keep = [StepKey(2, 20), StepKey(2, 30)]
    found = [StepKey(1, 70), StepKey(2, 10), *keep]
    assert removable_steps(found, keep, keep, _latest(2, 2, 30), None) == [StepKey(2, 10)]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"generation": -1}', b"[" * 100_000]
)
def test_what_is_no_pointer_points_nowhere_and_says_why(content: bytes) -> None:
    read = read_pointer(content)
    assert read.latest is None
    assert read.problem.startswith("cannot be used")
    assert read_pointer(None).problem == "is missing"
