"""The slot protocol, in every small schedule of what goes wrong, and in random larger ones."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from unit.vault.slot_protocol import BOUND, PATIENCE, Model, Shape

_FIRST = 10
_STEPS = 60
# Ticks until a commit is known, where a step takes ten: at once, and after two and a half steps.
_DELAYS = (2, 25)
_BACK_MAX = 10


def _patterns(steps: int) -> list[frozenset[int]]:
    """Return every set of steps, of these many, that a rank may not save."""
    numbers = range(_FIRST, _FIRST + steps)
    return [
        frozenset(step for at, step in enumerate(numbers) if bits >> at & 1)
        for bits in range(1 << steps)
    ]


def _every(ranks: int, steps: int, like: Shape) -> Iterator[tuple[int, Model]]:
    """Yield the last step that goes wrong, and what comes of it, for every such schedule."""
    patterns = _patterns(steps)
    for chosen in product(range(len(patterns)), repeat=ranks):
        skips = tuple(patterns[number] for number in chosen)
        last = max(max(missed, default=_FIRST) for missed in skips)
        for told in product(_DELAYS, repeat=ranks):
            yield last, Model(replace(like, told=told, skips=skips)).run(_STEPS)


def test_ranks_that_wait_for_each_freed_slot_may_never_save_a_common_step_again() -> None:
    """The fault that this protocol replaces: each waits for what the other's next commit frees."""
    skips = (frozenset[int](), frozenset(range(_FIRST, _FIRST + 10)))
    model = Model(Shape("patient", told=(25, 25), skips=skips, tells=False)).run(100)
    assert model.common_after(_FIRST + 10) is None
    assert model.longest_wait == PATIENCE
    assert model.now > 10 * PATIENCE


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("slots", [2, 3])
@pytest.mark.parametrize(("ranks", "steps"), [(2, 4), (3, 2)])
def test_in_every_schedule_ranks_are_in_phase_again_within_a_few_steps(
    ranks: int, steps: int, slots: int, waits: bool
) -> None:
    for last, model in _every(ranks, steps, Shape("ahead", slots, waits=waits)):
        common = model.common_after(last)
        assert common is not None, model.shape
        assert common - last <= _BACK_MAX, model.shape
        assert model.longest_wait <= BOUND


def test_ranks_with_one_slot_to_spare_whose_agents_tell_nothing_take_turns_for_good() -> None:
    """The one takes every second of the steps at which they meet, and the other those between."""
    silent = Shape("ahead", slots=2, waits=False, tells=False)
    runs = [model for _, model in _every(2, 3, silent)]
    lost = [model for model in runs if model.common_after(_FIRST + 3) is None]
    assert lost
    for model in lost:
        one, other = (rank.saved - set(range(_FIRST + 3)) for rank in model.ranks)
        assert len(one) > 2
        assert len(other) > 2
        assert not one & other


class _Apart(Model):
    """The same protocol where the controller has ranks that are out of phase meet nowhere."""

    def _bring_together(self) -> None:
        return


def test_only_a_common_rule_brings_ranks_together_whose_commits_are_known_late() -> None:
    skips = (frozenset[int](), frozenset(range(10, 20)))
    shape = Shape("ahead", told=(25, 25), skips=skips, tells=False)
    assert _Apart(shape).run(200).common_after(19) is None
    common = Model(shape).run(200).common_after(19)
    assert common is not None
    assert common - 19 <= _BACK_MAX


@pytest.mark.parametrize("seed", range(100))
def test_more_ranks_with_other_slots_delays_and_faults_hold_together(seed: int) -> None:
    random = Random(seed)
    ranks = random.randint(2, 8)
    told = tuple(random.choice((2, 5, 9, 14)) for _ in range(ranks))
    skips = tuple(
        frozenset(step for step in range(_FIRST, _FIRST + 8) if random.random() < 0.3)
        for _ in range(ranks)
    )
    refused = {random.randrange(ranks): {_FIRST + random.randrange(8)}}
    dies_at = random.choice((None, _FIRST + 4, _FIRST + 30))
    waits = random.random() < 0.5
    slots = random.randint(2, 5)
    shape = Shape("ahead", slots, told, 2, skips, refused, dies_at, waits=waits)
    model = Model(shape).run(_STEPS)
    common = model.common_after(_FIRST + 8)
    assert common is not None
    assert common - (_FIRST + 8) <= _BACK_MAX
    assert model.longest_wait <= BOUND
    if dies_at is not None:
        # What is restored was common, and the steps after it are made again.
        assert model.restored
        assert model.restored[0] < dies_at


@pytest.mark.parametrize("hold", range(12, 24))
def test_a_planned_restart_comes_after_its_step_in_spite_of_grants(hold: int) -> None:
    model = Model(Shape("ahead", told=(2, 5), hold=hold)).run(_STEPS)
    assert model.held
    assert model.step == hold + 1
    assert all(hold in rank.saved and max(rank.saved) == hold for rank in model.ranks)


@pytest.mark.parametrize("seed", range(60))
def test_ranks_of_other_sizes_whose_slots_are_taken_for_steps_meet_within_a_few_meetings(
    seed: int,
) -> None:
    random = Random(seed)
    ranks = random.randint(2, 8)
    told = tuple(random.choice((2, 25, 60, 90)) for _ in range(ranks))
    skips = tuple(
        frozenset(step for step in range(_FIRST, _FIRST + 4) if random.random() < 0.4)
        for _ in range(ranks)
    )
    slots, waits = random.choice((2, 2, 3)), random.random() < 0.5
    shape = Shape("ahead", slots, told, skips=skips, waits=waits)
    model = Model(shape).run(2 * _STEPS)
    common = model.common_after(_FIRST + 4)
    assert common is not None
    assert common - (_FIRST + 4) <= _BACK_MAX + 2 * shape.spacing
    assert model.longest_wait <= BOUND
