"""The slot protocol as it ships, and one thing that goes wrong at every place of its schedules."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from everstep_controller.core.model.snapshots import Cadence
from unit.vault.slot_world import (
    OF_ALL,
    SLOT_WAIT_S,
    TICK_S,
    Fault,
    Node,
    Process,
    Session,
    Shape,
    World,
)

_FIRST = 4
# Ticks until a copy is on a second node, where a step takes ten: at once, after two and a half.
_DELAYS = (1, 25)
# So many steps after the last thing that went wrong all ranks have one in common again, where it is
# safe by then; and they go on to have them.
_BACK_MAX = 10
_COMMON = 2
# Ranks that have met hear so much later that each step is saved again.
_HEARD = 3
_STEPS_MAX = 60
_WAIT_MAX = round(SLOT_WAIT_S / TICK_S)


def _skips(ranks: int, steps: int) -> Iterator[tuple[frozenset[int], ...]]:
    """Yield every choice of steps, of these many, that ranks do not save."""
    numbers = range(_FIRST, _FIRST + steps)
    patterns = [
        frozenset(step for at, step in enumerate(numbers) if bits >> at & 1)
        for bits in range(1 << steps)
    ]
    yield from product(patterns, repeat=ranks)


def _schedules(like: Shape, ranks: int, steps: int) -> Iterator[Shape]:
    """Yield every choice of delays and skipped steps."""
    for told in product(_DELAYS, repeat=ranks):
        for skips in _skips(ranks, steps):
            yield replace(like, told=told, skips=skips)


def _places(shape: Shape, fault: Fault, steps: int) -> Iterator[Shape]:
    """Yield every rank and place at which one thing may go wrong within these steps."""
    events = World(shape).run(_STEPS_MAX, steps).events
    ranks = range(1 if fault in OF_ALL else len(shape.told))
    for rank, after in product(ranks, range(events)):
        yield replace(shape, fault=fault, rank=rank, after=after)


def _see(world: World) -> tuple[int, int]:
    """Return after how many steps ranks have a common one, and then the next."""
    common, taken = world.common(), world.shape.taken_steps
    assert len(common) == _COMMON, world.shape
    back, after = common[0] - world.disturbed, common[1] - common[0]
    assert back <= max(_BACK_MAX, taken), world.shape
    assert after <= max(_BACK_MAX, taken + _HEARD), world.shape
    assert world.longest_wait <= _WAIT_MAX, world.shape
    return back, after


def _play(shape: Shape) -> World:
    return World(shape).run(_COMMON, _STEPS_MAX + 2 * shape.taken_steps)


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("slots", [2, 3])
@pytest.mark.parametrize(
    ("ranks", "steps"), [(2, 4), (3, 1), pytest.param(3, 2, marks=pytest.mark.long)]
)
def test_in_every_schedule_of_skipped_steps_ranks_are_in_phase_again(
    ranks: int, steps: int, slots: int, waits: bool
) -> None:
    for shape in _schedules(Shape(slots, waits=waits), ranks, steps):
        _see(_play(shape))


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize(("ranks", "waits"), [(2, True), (2, False), (3, False)])
def test_one_thing_goes_wrong_at_every_place_beside_steps_that_ranks_have_skipped(
    ranks: int, waits: bool, fault: Fault
) -> None:
    """With two slots, which is the harder case; those for three are among the long ones."""
    quick_and_late = (1, 25, 1)[:ranks]
    for second in (frozenset[int](), frozenset({_FIRST + 1})):
        skips = (frozenset({_FIRST}), second, frozenset[int]())[:ranks]
        shape = Shape(2, quick_and_late, skips, waits)
        seen = [_see(_play(one)) for one in _places(shape, fault, 2)]
        assert len(seen) >= 20


@pytest.mark.parametrize("told", [60, 90, 150, 250])
def test_where_copies_take_longer_ranks_meet_as_soon_as_their_slots_allow_and_no_sooner(
    told: int,
) -> None:
    """Of two slots, one has the recoverable step and one the next, until that is recoverable.

    So two steps that all save are as far apart as that takes; it is more than ten steps only where
    it takes more.
    """
    shape = Shape(2, (told, 1), (frozenset({_FIRST}), frozenset()), waits=False)
    places = (one for one in _places(shape, Fault.ATTACH, 2) if one.rank == 1)
    seen = [_see(_play(one)) for one in places]
    assert max(max(steps) for steps in seen) == shape.taken_steps


@pytest.mark.long
@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize(
    ("ranks", "steps", "slots", "waits"),
    [(2, 2, 2, True), (2, 2, 2, False), (2, 1, 3, True), (2, 1, 3, False), (3, 1, 2, False)],
)
def test_one_thing_goes_wrong_at_every_place_of_every_schedule(
    ranks: int, steps: int, waits: bool, slots: int, fault: Fault
) -> None:
    for shape in _schedules(Shape(slots, waits=waits), ranks, steps):
        for one in _places(shape, fault, steps + 1):
            _see(_play(one))


def _at_random(seed: int, delays: tuple[int, ...]) -> Shape:
    random = Random(seed)
    ranks = random.randint(2, 8)
    told = tuple(random.choice(delays) for _ in range(ranks))
    steps = range(_FIRST, _FIRST + 6)
    skips = tuple(frozenset(step for step in steps if random.random() < 0.3) for _ in range(ranks))
    after = random.randrange(30 * ranks)
    slots, waits = random.randint(2, 5), random.random() < 0.5
    fault = random.choice(list(Fault))
    return Shape(slots, told, skips, waits, fault, random.randrange(ranks), after)


@pytest.mark.parametrize("delays", [(1, 5, 25), (1, 25, 60, 90)])
@pytest.mark.parametrize("seed", range(40))
def test_more_ranks_hold_together_whatever_goes_wrong(seed: int, delays: tuple[int, ...]) -> None:
    _see(_play(_at_random(seed, delays)))


# --- what each rule is for ------------------------------------------------------------------------


class _Admitting(World):
    """A process may attach again while its older connection is still open."""

    def is_refused(self, process: Process) -> bool:
        return False


class _Hasty(World):
    """What was granted is free memory as soon as its generation is stopped."""

    def _stop_here(self, node: Node) -> None:
        for memory in node.memories:
            memory.table.abandon()
        super()._stop_here(node)


class _Forgetful(World):
    """Agents keep no older generation's copies, and none but the newest that they have."""

    def _free(self, node: Node) -> None:
        step = node.orders.recoverable.step
        if step is not None:
            recoverable = replace(node.orders.recoverable, step=step + 1)
            node.orders = replace(node.orders, recoverable=recoverable)
        super()._free(node)


class _Apart(World):
    """Agents tell nothing of what is left out, and the controller lets nobody meet."""

    def tell_left_out(self, session: Session, step: int) -> None:
        return

    def bring_together(self, now_ns: int) -> Cadence:
        return self.cadence


def test_without_any_word_ranks_that_do_not_wait_are_out_of_phase_for_good() -> None:
    shapes = list(_schedules(Shape(2, waits=False), 2, 2))
    played = [_Apart(shape).run(_COMMON, _STEPS_MAX) for shape in shapes]
    assert any(len(world.common()) < _COMMON for world in played)


@pytest.mark.parametrize(
    ("careless", "fault", "said"),
    [
        (_Admitting, Fault.ATTACH_LATE, "a slot that is written is none"),
        (_Hasty, Fault.ROLLBACK, "a slot that is written counts as free memory"),
        (_Forgetful, Fault.DEATH, "it goes back|what was safe is lost"),
    ],
)
def test_without_its_rule_something_is_lost_at_some_place(
    careless: type[World], fault: Fault, said: str
) -> None:
    def play_all() -> None:
        for shape in _places(Shape(2, (1, 25)), fault, 2):
            careless(shape).run(_COMMON, _STEPS_MAX)

    with pytest.raises(AssertionError, match=said):
        play_all()
