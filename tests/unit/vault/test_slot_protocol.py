"""The slot protocol without its parts, and the one that it replaced: ranks stay out of phase."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from unit.vault.slot_protocol import PATIENCE, Model, Shape

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
