"""When the holder of a journal's lease is considered gone: in virtual time, by what is seen."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from everstep_controller.journal.lease import (
    BEAT_S,
    GONE_AFTER_OUTAGE_NS,
    GONE_NS,
    LOOK_S,
    Holder,
    LeaseSeen,
    Look,
    Observation,
    Process,
    observe,
    refusal,
)

S = 1_000_000_000
HOLDER = Holder("a", Process("machine-1", "boot", 17, 99))
OTHER = Holder("b", Process("machine-2", "boot", 18, 99))


def seen(beat: int, term: int = 1, holder: Holder | None = HOLDER) -> LeaseSeen:
    return LeaseSeen(term, holder, beat)


def observed(*looks: tuple[float, LeaseSeen | None]) -> Observation:
    observation = None
    for at_s, one in looks:
        observation = observe(observation, Look(round(at_s * S), one))
    assert observation is not None
    return observation


def still(from_s: float, until_s: float, beat: int = 7) -> Iterator[tuple[float, LeaseSeen]]:
    at_s = from_s
    while at_s <= until_s:
        yield at_s, seen(beat)
        at_s += LOOK_S


def test_a_holder_whose_count_stands_still_is_gone_after_five_seconds_and_not_before() -> None:
    assert not observed(*still(0, 4.5)).is_gone
    assert observed(*still(0, 5)).is_gone


def test_a_lease_that_was_given_back_is_free_at_once() -> None:
    assert observed((0, seen(7, holder=None))).is_gone


@pytest.mark.parametrize("moved", [seen(8), seen(7, term=2), seen(7, holder=OTHER)])
def test_whatever_moves_begins_the_wait_anew(moved: LeaseSeen) -> None:
    looks = [*still(0, 4.5), (5.0, moved)]
    assert not observed(*looks).is_gone
    assert observed(*looks).still_ns() == 0


def test_an_outage_of_the_database_begins_the_wait_anew_and_prefers_the_holder() -> None:
    outage: list[tuple[float, LeaseSeen | None]] = [(5.0, None), (5.5, None)]
    assert not observed(*still(0, 4.5), *outage).is_gone
    assert not observed(*still(0, 4.5), *outage, *still(6, 6 + 14.5)).is_gone
    assert observed(*still(0, 4.5), *outage, *still(6, 6 + 15)).is_gone


def test_an_observer_that_stood_still_itself_has_seen_nothing_meanwhile() -> None:
    assert not observed((0, seen(7)), (60, seen(7))).is_gone
    assert not observed((0, seen(7)), (60, seen(7)), *still(60.5, 74.5)).is_gone
    assert observed((0, seen(7)), (60, seen(7)), *still(60.5, 75)).is_gone


def test_a_holder_that_came_back_after_an_outage_is_judged_as_before_it() -> None:
    after = [(5.0, None), (5.5, seen(7)), (6.0, seen(8))]
    assert observed(*after, *still(6.5, 11, beat=8)).is_gone


def test_who_is_refused_reads_who_holds_it_and_what_to_do() -> None:
    told = refusal(observed((0, seen(7)), (0.5, seen(7))))
    assert "process 17 on machine-1" in told
    assert "stop it first" in told


@dataclass
class World:
    """A database that goes and comes, a holder that writes while it can, and an observer."""

    chosen: random.Random
    now_ns: int = 0
    beat: int = 0
    up: bool = True
    # Until when holder and observer stand still, or the database is away.
    holder_until_ns: int = 0
    observer_until_ns: int = 0
    down_until_ns: int = 0
    beaten_ns: int = 0
    # When the database came back last; the holder needs a moment to find it again.
    back_ns: int = 0

    def step(self) -> None:
        self.now_ns += round(LOOK_S * S)
        if self.chosen.random() < 0.02:
            self.down_until_ns = self.now_ns + self.chosen.randrange(1, 30) * S
        if self.chosen.random() < 0.02:
            self.observer_until_ns = self.now_ns + self.chosen.randrange(1, 60) * S
        was_up, self.up = self.up, self.now_ns >= self.down_until_ns
        if self.up and not was_up:
            self.back_ns = self.now_ns
        finds_it = self.now_ns - self.back_ns >= self.chosen.randrange(0, 8) * S
        writes = self.up and self.now_ns >= self.holder_until_ns and finds_it
        if writes and self.now_ns - self.beaten_ns >= BEAT_S * S:
            self.beat, self.beaten_ns = self.beat + 1, self.now_ns
            if self.chosen.random() < 0.1:
                # Shorter than what an observer waits: longer ones are an end for all others.
                self.holder_until_ns = self.now_ns + self.chosen.randrange(1, 4) * S

    def look(self, before: Observation | None) -> Observation | None:
        if self.now_ns < self.observer_until_ns:
            return before
        return observe(before, Look(self.now_ns, seen(self.beat) if self.up else None))


@pytest.mark.parametrize("seed", range(40))
def test_no_holder_that_lives_is_ever_considered_gone(seed: int) -> None:
    world, observation = World(random.Random(seed)), None
    for _ in range(4000):
        world.step()
        observation = world.look(observation)
        assert observation is None or not observation.is_gone, (seed, world)


@pytest.mark.parametrize("seed", range(40))
def test_every_holder_that_is_dead_is_considered_gone_once_the_database_is_there(
    seed: int,
) -> None:
    world, observation = World(random.Random(seed)), None
    for _ in range(50):
        world.step()
        observation = world.look(observation)
    calm_ns = max(world.now_ns, world.down_until_ns, world.observer_until_ns)
    limit_ns = calm_ns + GONE_AFTER_OUTAGE_NS + 2 * GONE_NS
    while not (observation is not None and observation.is_gone):
        world.now_ns += round(LOOK_S * S)
        world.up = world.now_ns >= world.down_until_ns
        observation = world.look(observation)
        assert world.now_ns < limit_ns, seed


# --- connections of the holder -------------------------------------------------------------------


def with_connection(
    from_s: float, until_s: float, *, connected: bool, beat: int = 7
) -> Iterator[tuple[float, LeaseSeen]]:
    for at_s, one in still(from_s, until_s, beat):
        yield at_s, replace(one, is_connected=connected)


def test_a_holder_whose_connections_are_gone_is_gone_after_two_seconds() -> None:
    before = [*with_connection(0, 1, connected=True)]
    assert not observed(*before, *with_connection(1.5, 3.0, connected=False)).is_gone
    assert observed(*before, *with_connection(1.5, 3.5, connected=False)).is_gone


def test_a_holder_that_writes_without_a_listed_connection_is_not_gone() -> None:
    before = [*with_connection(0, 1, connected=True)]
    writing = [(1.5 + i / 2, replace(seen(8 + i), is_connected=False)) for i in range(20)]
    assert not observed(*before, *writing).is_gone


def test_where_the_database_never_listed_the_holder_only_its_count_tells() -> None:
    assert not observed(*with_connection(0, 4.5, connected=False)).is_gone
    assert observed(*with_connection(0, 5, connected=False)).is_gone


def test_a_holder_that_connects_again_is_waited_for_as_before() -> None:
    looks = [
        *with_connection(0, 1, connected=True),
        *with_connection(1.5, 2.5, connected=False),
        *with_connection(3.0, 4.5, connected=True),
    ]
    assert not observed(*looks).is_gone


def test_after_an_outage_missing_connections_hurry_nobody() -> None:
    outage: list[tuple[float, LeaseSeen | None]] = [(1.5, None), (2.0, None)]
    before = [*with_connection(0, 1, connected=True)]
    after = [*with_connection(2.5, 2.5 + 14.5, connected=False)]
    assert not observed(*before, *outage, *after).is_gone


def test_a_new_holder_has_to_be_seen_connected_itself() -> None:
    looks = [
        *with_connection(0, 1, connected=True),
        (1.5, seen(8, term=2, holder=OTHER)),
        (2.0, seen(8, term=2, holder=OTHER)),
    ]
    later = [(2.0 + i / 2, seen(8, term=2, holder=OTHER)) for i in range(1, 6)]
    assert not observed(*looks, *later).is_gone
