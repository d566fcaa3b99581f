"""Which of several controllers an agent asks, when, and when it doubts the one that serves it."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from everstep_agent.backoff import Backoff
from everstep_agent.controllers.choice import (
    PATIENCE_S,
    Answer,
    ControllerChoice,
    Failure,
    StallWatch,
)

A, B, C = "a:1", "b:1", "c:1"
_GONE, _SILENT = Failure(Answer.GONE), Failure(Answer.SILENT)
_STANDBY, _REFUSED = Failure(Answer.STANDBY), Failure(Answer.REFUSED)
_OUTDATED, _RENEWED = Failure(Answer.OUTDATED), Failure(Answer.RENEWED)
_CONNECT_S = 10.0

# What a controller says to an agent at a time, and after how long; None: Welcome.
World = Callable[[str, float], tuple[Failure | None, float]]


def _choice(addresses: Sequence[str] = (A, B), seed: int = 0) -> ControllerChoice:
    rng = random.Random(seed)
    backoff = Backoff(rng, first_s=0.1, cap_s=5.0)
    return ControllerChoice(addresses, backoff.another, rng)


@dataclass
class Story:
    """What one agent asks of a world, until somebody serves it or a time is over."""

    choice: ControllerChoice
    world: World
    asked: list[tuple[float, str]] = field(default_factory=list)
    served: tuple[float, str] | None = None

    def run(self, now_s: float, until_s: float = 200.0) -> "Story":
        pending: list[tuple[float, str, Failure | None]] = []
        while now_s < until_s:
            step = self.choice.next(now_s)
            if step.address:
                assert step.address not in {address for _, address, _ in pending}
                self.asked.append((now_s, step.address))
                failure, after_s = self.world(step.address, now_s)
                pending.append((now_s + after_s, step.address, failure))
                continue
            times = [at_s for at_s, _, _ in pending] + ([] if step.at_s is None else [step.at_s])
            now_s = max(now_s, min(times))
            for one in sorted(one for one in pending if one[0] <= now_s):
                pending.remove(one)
                _, address, failure = one
                if failure is None or self._taken(address, failure):
                    self.choice.welcomed(address)
                    self.served = now_s, address
                    return self
                self.choice.failed(address, failure, now_s)
        return self

    def _taken(self, address: str, failure: Failure) -> bool:
        return failure is _OUTDATED and self.choice.takes_outdated(address)

    def times(self, address: str) -> list[float]:
        return [at_s for at_s, asked in self.asked if asked == address]


def _taken_over(at_s: float, dead: Failure = _GONE, dead_after_s: float = 0.0) -> World:
    """A is dead, and B a standby that takes over at a time."""

    def world(address: str, now_s: float) -> tuple[Failure | None, float]:
        if address == A:
            return dead, dead_after_s
        return (None if now_s >= at_s else Failure(Answer.STANDBY, active=A)), 0.01

    return world


def _served(seed: int, addresses: Sequence[str] = (A, B)) -> ControllerChoice:
    """Return the choice of an agent that A serves."""
    choice = _choice(addresses, seed)
    assert choice.next(0.0).address == A
    choice.welcomed(A)
    return choice


@pytest.mark.parametrize("seed", range(20))
def test_a_single_controller_is_asked_again_after_the_waits_of_its_backoff(seed: int) -> None:
    choice, backoff = _choice([A], seed), Backoff(random.Random(seed), 0.1, 5.0)
    assert choice.next(0.0).address == A
    choice.failed(A, _GONE, 0.0)
    # One number is drawn for the patience with others, which a single one does not have.
    backoff.chance.uniform(0, 1)
    assert choice.next(0.0).at_s == pytest.approx(backoff.next_s())
    assert choice.next(0.0).address == ""
    assert choice.next(0.2).address == A


@pytest.mark.parametrize("seed", range(20))
def test_a_controller_that_serves_again_at_once_keeps_its_agents(seed: int) -> None:
    choice = _served(seed)
    choice.lost(_GONE, 10.0, good=True)
    story = Story(choice, lambda address, _: (None if address == A else _STANDBY, 0.0)).run(10.0)
    assert story.served
    assert story.served[1] == A
    assert story.served[0] < 12.5


@pytest.mark.parametrize("seed", range(50))
def test_agents_of_a_dead_controller_are_at_its_successor_within_seconds(seed: int) -> None:
    choice = _served(seed)
    choice.lost(_GONE, 10.0, good=True)
    story = Story(choice, _taken_over(16.0)).run(10.0)
    assert story.served
    assert story.served[1] == B
    assert 16.0 <= story.served[0] < 16.0 + 6.1
    # Whoever takes over has other things to do than to say again and again that it has not yet.
    assert len([at_s for at_s in story.times(B) if at_s < 16.0]) <= 5


@pytest.mark.parametrize("seed", range(50))
def test_a_stopped_controller_delays_nobody_though_it_never_says_no(seed: int) -> None:
    choice = _served(seed)
    choice.lost(_SILENT, 10.0, good=True)
    story = Story(choice, _taken_over(10.0, _SILENT, _CONNECT_S)).run(10.0)
    assert story.served
    assert story.served[1] == B
    assert story.served[0] < 12.1
    # At its start an agent asks it first, and the other one while it waits.
    story = Story(_choice(seed=seed), _taken_over(0.0, _SILENT, _CONNECT_S)).run(0.0)
    assert story.served
    assert PATIENCE_S <= story.served[0] <= 2 * PATIENCE_S + 0.1


@pytest.mark.parametrize("nodes", [1_000, 5_000])
def test_a_fleet_of_any_size_asks_a_standby_a_thousand_times_a_second_at_most(nodes: int) -> None:
    """The load on the one that is about to take over, which needs its processor for the lease."""
    every, times = 5, list[float]()
    for seed in range(0, nodes, every):
        choice = _served(seed)
        choice.welcomed(A, nodes)
        choice.lost(_GONE, 0.0, good=True)
        story = Story(choice, lambda address, _: (_STANDBY if address == B else _GONE, 0.0))
        times += story.run(0.0, 30.0).times(B)
    for second in range(30):
        asked = every * len([at_s for at_s in times if second <= at_s < second + 1])
        assert asked < 1.5 * 1_000, second


def test_a_fleet_that_doubts_its_controller_asks_the_other_one_as_gently() -> None:
    nodes, doubts = 10_000, list[float]()
    for seed in range(0, nodes, 10):
        watch = StallWatch(random.Random(seed), crowd_s=nodes / 1_000)
        assert not watch.is_stalled(7, 0.0, 0.0)
        doubts.append(next(s for s in range(30) if watch.is_stalled(7, 0.0, float(s))))
    assert all(10 * doubts.count(second) < 1_500 for second in range(30))
    assert max(doubts) <= 13


@pytest.mark.parametrize("seed", range(20))
def test_who_hands_over_is_left_for_the_one_that_it_names(seed: int) -> None:
    choice = _served(seed, (A, C, B))
    choice.lost(Failure(Answer.STANDBY, active=B), 10.0, good=True)
    story = Story(choice, lambda address, _: (None if address == B else _STANDBY, 0.0)).run(10.0)
    assert story.asked[0][1] == B
    assert story.served
    assert story.served[0] <= 10.5


@pytest.mark.parametrize("seed", range(20))
def test_an_address_that_is_not_configured_is_never_asked(seed: int) -> None:
    def world(address: str, _: float) -> tuple[Failure | None, float]:
        return Failure(Answer.STANDBY, active="evil:1"), 0.0

    choice = _choice(seed=seed)
    story = Story(choice, world).run(0.0, 60.0)
    assert {address for _, address in story.asked} == {A, B}
    assert not choice.is_known("evil:1")


@pytest.mark.parametrize("seed", range(20))
def test_two_that_name_each_other_are_not_asked_without_end(seed: int) -> None:
    def world(address: str, _: float) -> tuple[Failure | None, float]:
        return Failure(Answer.STANDBY, active=A if address == B else B), 0.0

    story = Story(_choice(seed=seed), world).run(0.0, 60.0)
    assert len(story.asked) < 2 * 60.0


@pytest.mark.parametrize("seed", range(20))
def test_the_active_one_that_is_only_slow_is_asked_on_while_others_say_no(seed: int) -> None:
    """It answers Hello after eight seconds, because a fleet has come to it."""

    def world(address: str, _: float) -> tuple[Failure | None, float]:
        return (None, 8.0) if address == A else (Failure(Answer.STANDBY, active=A), 0.0)

    story = Story(_choice(seed=seed), world).run(0.0)
    assert story.served == (8.0, A)
    assert story.times(A) == [0.0]


@pytest.mark.parametrize("seed", range(20))
def test_a_doubted_controller_is_left_only_for_one_that_serves(seed: int) -> None:
    choice = _served(seed)
    told = Failure(Answer.STANDBY, active=A)
    story = Story(choice, lambda _, __: (told, 0.01)).run(10.0, 310.0)
    assert not story.served
    assert set(address for _, address in story.asked) == {B}
    # Five minutes of doubt are no crowd of questions.
    assert len(story.asked) < 25
    assert choice.serving == A
    story = Story(choice, lambda _, __: (None, 0.01)).run(310.0, 400.0)
    assert story.served
    assert (story.served[1], choice.serving) == (B, B)


@pytest.mark.parametrize("seed", range(20))
def test_a_controller_of_a_lower_term_is_taken_only_where_no_other_serves(seed: int) -> None:
    def woken(address: str, _: float) -> tuple[Failure | None, float]:
        return (_OUTDATED, 0.0) if address == A else (None, 0.0)

    story = Story(_choice(seed=seed), woken).run(0.0)
    assert story.served
    assert story.served[1] == B

    def alone(address: str, _: float) -> tuple[Failure | None, float]:
        return (_OUTDATED, 0.0) if address == A else (_GONE, 0.0)

    story = Story(_choice(seed=seed), alone).run(0.0)
    assert story.served
    assert story.served[1] == A
    assert story.served[0] < 6.1
    # Of a single one it is taken at once, as ever: so it hears of the higher term, and halts.
    assert _choice([A], seed).takes_outdated(A)


@pytest.mark.parametrize("seed", range(20))
def test_a_refusal_is_asked_again_after_seconds_and_a_new_hello_at_once(seed: int) -> None:
    choice = _choice([A], seed)
    choice.next(0.0)
    choice.failed(A, _REFUSED, 0.0)
    at_s = choice.next(0.0).at_s
    assert at_s is not None
    assert 3.0 <= at_s <= 12.0
    choice = _served(seed)
    choice.lost(_RENEWED, 7.0, good=False)
    assert choice.next(7.0).address == A


def _random_world(rng: random.Random) -> World:
    """Controllers that answer by chance, and one that serves from some time on."""
    serves, from_s = rng.choice((A, B, C)), rng.uniform(0.0, 60.0)
    kinds = [_GONE, _SILENT, _STANDBY, _REFUSED, _OUTDATED, Failure(Answer.STANDBY, active=A)]

    def world(address: str, now_s: float) -> tuple[Failure | None, float]:
        if address == serves and now_s >= from_s:
            return None, rng.uniform(0.0, 3.0)
        failure = rng.choice(kinds)
        return failure, _CONNECT_S if failure is _SILENT else rng.uniform(0.0, 1.0)

    return world


@pytest.mark.parametrize("seed", range(300))
def test_whatever_others_say_the_one_that_serves_is_found(seed: int) -> None:
    rng = random.Random(seed)
    choice, now_s = _choice((A, B, C), seed), 0.0
    for _ in range(3):
        story = Story(choice, _random_world(rng)).run(now_s, now_s + 200.0)
        assert story.served, story.asked[-10:]
        now_s = story.served[0] + rng.uniform(0.0, 20.0)
        lost = rng.choice([_GONE, _SILENT, _RENEWED, Failure(Answer.STANDBY, active=C)])
        choice.lost(lost, now_s, good=rng.random() < 0.5)
        assert not choice.serving


@pytest.mark.parametrize("seed", range(50))
def test_a_controller_is_doubted_when_a_record_waits_and_nothing_is_acknowledged(seed: int) -> None:
    watch = StallWatch(random.Random(seed))
    assert not watch.is_stalled(7, 0.0, 100.0)
    assert not watch.is_stalled(7, 0.0, 101.9)
    assert watch.is_stalled(7, 0.0, 105.1)
    # The next one waits since it was seen, and none at all is no doubt.
    assert not watch.is_stalled(8, 0.0, 105.2)
    assert not watch.is_stalled(0, 0.0, 120.0)
    assert not watch.is_stalled(0, 14.0, 130.0)
    assert watch.is_stalled(0, 15.0, 131.0)
    # What is acknowledged slowly is acknowledged.
    assert not any(watch.is_stalled(number, 0.0, 2.0 * number) for number in range(200, 300))


def test_a_dead_controller_that_is_asked_again_does_not_put_off_the_question_to_another() -> None:
    # It refuses at once, as a machine does whose controller has ended.
    first_asked = []
    for seed in range(500):
        choice = _choice(seed=seed)
        choice.welcomed(A)
        choice.lost(_GONE, 0.0, good=True)
        story = Story(choice, _taken_over(2.6)).run(0.0)
        first_asked.append(story.times(B)[0])
    assert max(first_asked) < 3.0
