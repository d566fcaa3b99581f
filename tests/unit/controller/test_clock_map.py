import random
from collections import deque

from everstep_common.clock import Stamp
from everstep_controller.telemetry.clock_map import ClockMap

S = 1_000_000_000
OFFSET = 1_000 * S


def at(boot: str, boot_ns: int, wall_ns: int = 0) -> Stamp:
    """Return a stamp of a node."""
    return Stamp(boot, boot_ns, wall_ns)


def test_the_smallest_round_trip_gives_the_offset() -> None:
    clock = ClockMap()
    clock.enter_reply(at("boot", 10 * S), sent_ns=OFFSET + 9 * S, received_ns=OFFSET + 13 * S)
    clock.enter_reply(
        at("boot", 20 * S), sent_ns=OFFSET + 20 * S - 5, received_ns=OFFSET + 20 * S + 5
    )
    clock.enter_reply(at("boot", 30 * S), sent_ns=OFFSET + 29 * S, received_ns=OFFSET + 35 * S)

    estimate = clock.estimate(OFFSET + 35 * S)
    assert estimate is not None
    assert estimate.offset_ns == OFFSET
    assert estimate.uncertainty_ns < 1_000_000


def test_a_hello_serves_until_the_first_answer() -> None:
    clock = ClockMap()
    clock.enter_hello(at("boot", 10 * S), OFFSET + 10 * S + 7)
    assert clock.to_controller_ns("boot", 9 * S, OFFSET + 11 * S) == OFFSET + 9 * S + 7

    clock.enter_reply(at("boot", 12 * S), OFFSET + 12 * S - 1, OFFSET + 12 * S + 1)
    assert clock.to_controller_ns("boot", 9 * S, OFFSET + 13 * S) == OFFSET + 9 * S


def test_nothing_happens_after_it_was_learned() -> None:
    clock = ClockMap()
    clock.enter_hello(at("boot", 10 * S), OFFSET + 10 * S)
    assert clock.to_controller_ns("boot", 50 * S, OFFSET + 11 * S) == OFFSET + 11 * S


def test_another_boot_is_known_by_its_time_of_arrival_only() -> None:
    clock = ClockMap()
    clock.enter_hello(at("boot", 10 * S), OFFSET + 10 * S)
    assert clock.to_controller_ns("older", 9 * S, OFFSET + 11 * S) == OFFSET + 11 * S


def test_a_new_boot_forgets_the_old_clock() -> None:
    clock = ClockMap()
    clock.enter_reply(at("boot", 10 * S), OFFSET + 10 * S - 1, OFFSET + 10 * S + 1)
    clock.enter_hello(at("next", 1 * S), OFFSET + 20 * S)
    assert clock.to_controller_ns("next", 2 * S, OFFSET + 30 * S) == OFFSET + 21 * S


def test_old_samples_lose_against_fresh_ones_by_drift() -> None:
    clock = ClockMap()
    clock.enter_reply(at("boot", 0), OFFSET - 100, OFFSET + 100)
    day = 86_400 * S
    clock.enter_reply(at("boot", day), OFFSET + day + 999_000, OFFSET + day + 1_001_000)
    estimate = clock.estimate(OFFSET + day + 1_001_000)
    assert estimate is not None
    assert estimate.offset_ns == OFFSET + 1_000_000


def test_an_answer_before_its_question_is_ignored() -> None:
    clock = ClockMap()
    clock.enter_reply(at("boot", 0), sent_ns=10, received_ns=5)
    assert clock.estimate(10) is None


def test_the_wall_clock_is_told_by_its_newest_reading_and_the_best_round_trip() -> None:
    clock = ClockMap()
    assert clock.wall_offset(OFFSET) is None
    # The node's wall clock is 3 s ahead of the controller's; the first answer is the quicker one.
    ahead = 3 * S
    clock.enter_reply(at("boot", 10 * S, OFFSET + 10 * S + ahead), OFFSET + 10 * S, OFFSET + 10 * S)
    clock.enter_reply(at("boot", 20 * S, OFFSET + 20 * S), OFFSET + 19 * S, OFFSET + 25 * S)

    known = clock.wall_offset(OFFSET + 25 * S)
    assert known is not None
    assert known.offset_ns == 0, "it was set back between the two, and the slow answer says so"
    assert known.uncertainty_ns < 1_000_000


def test_the_best_sample_is_the_best_of_those_that_are_left() -> None:
    clock = ClockMap()
    rng = random.Random(5)
    kept: deque[tuple[int, int]] = deque(maxlen=64)
    for second in range(1, 500):
        half_ns = rng.randrange(1, 5_000_000)
        middle_ns = OFFSET + second * S
        clock.enter_reply(at("boot", second * S), middle_ns - half_ns, middle_ns + half_ns)
        now_ns = middle_ns + half_ns
        kept.append((now_ns, half_ns))
        estimate = clock.estimate(now_ns)
        assert estimate is not None
        best = min(half + (now_ns - taken) * 50 // 1_000_000 for taken, half in kept)
        assert abs(estimate.uncertainty_ns - best) <= 1


def test_what_was_seen_in_an_earlier_boot_is_as_old_as_this_one_at_least() -> None:
    clock, wall_ns = ClockMap(), 7_000_000 * S
    clock.enter_hello(at("new", 600 * S, wall_ns), OFFSET + 600 * S)
    now_ns = OFFSET + 700 * S
    assert clock.seen_ns(at("new", 650 * S, wall_ns + 50 * S), now_ns) == OFFSET + 650 * S
    assert clock.seen_ns(at("old", 9 * S, wall_ns), now_ns) == OFFSET, "this boot began then"
    hours_ago = at("old", 9 * S, wall_ns - 900 * S)
    assert clock.seen_ns(hours_ago, now_ns) == OFFSET + 600 * S - 900 * S
    ahead = at("old", 9 * S, wall_ns + 10**6 * S)
    assert clock.seen_ns(ahead, now_ns) == OFFSET, "a wall clock makes nothing younger"
    assert ClockMap().seen_ns(at("old", 9 * S), now_ns) == now_ns
