"""Delivery queue of a webhook in virtual time: order, rate, back-off, digests, what is given up."""

import random
from collections import Counter

import pytest

from everstep_controller.webhooks.queue import (
    REFUSALS_MAX,
    WAITING_MAX,
    DeliveryQueue,
    Digest,
    Outcome,
    Waiting,
)
from unit.webhooks.lines import S, news


class Receiver:
    """A queue, its clock, and what became of what it had sent."""

    def __init__(self, cursor: int = 0, rate: int = 10) -> None:
        self.queue = DeliveryQueue(cursor, rate)
        self.now_ns = 1000 * S
        self.accepted: list[int | tuple[int, int]] = []
        self.times_ns: list[int] = []

    def offer(self, *numbers: int, subject: str = "") -> None:
        for number in numbers:
            self.queue.offer(number, news(number, subject or f"n{number}"))

    def take(self) -> Waiting | Digest | None:
        """Return what is sent now, if anything is."""
        return self.queue.take_next(self.now_ns)

    def settle(self, sent: Waiting | Digest | None, outcome: Outcome, wait_s: float = 0) -> None:
        assert sent is not None
        self.queue.settle(sent, outcome, self.now_ns, "it answered 500", wait_s)
        if outcome is Outcome.ACCEPTED:
            self.accepted.append(_numbers(sent))
            self.times_ns.append(self.now_ns)

    def run(self, until_s: float) -> None:
        """Accept whatever is sent until then, by the waits that the queue names."""
        until_ns = 1000 * S + int(until_s * S)
        while self.now_ns < until_ns and not self.queue.is_empty:
            sent = self.take()
            if sent is not None:
                self.settle(sent, Outcome.ACCEPTED)
            else:
                self.now_ns += max(1, self.queue.wait_ns(self.now_ns))


def _numbers(sent: Waiting | Digest) -> int | tuple[int, int]:
    return (sent.first, sent.through) if isinstance(sent, Digest) else sent.news.number


def test_events_are_sent_in_their_order_and_the_cursor_follows() -> None:
    receiver = Receiver(cursor=4)
    receiver.offer(5, 6, 7)
    assert receiver.queue.cursor == 4
    receiver.run(1)
    assert receiver.accepted == [5, 6, 7]
    assert receiver.queue.cursor == 7


def test_lines_that_are_not_for_it_move_the_cursor_behind_what_waits() -> None:
    receiver = Receiver()
    receiver.queue.offer(1, None)
    assert receiver.queue.cursor == 1
    receiver.offer(2)
    receiver.queue.offer(3, None)
    assert receiver.queue.cursor == 1
    receiver.run(1)
    assert receiver.queue.cursor == 3


def test_a_receiver_that_is_away_is_asked_ever_more_seldom_and_gets_all_in_order() -> None:
    receiver = Receiver()
    receiver.offer(1, 2)
    waits_s = []
    for _ in range(12):
        receiver.settle(receiver.take(), Outcome.FAILED)
        assert receiver.take() is None
        waits_s.append(receiver.queue.wait_ns(receiver.now_ns) / S)
        receiver.now_ns += receiver.queue.wait_ns(receiver.now_ns)
    assert waits_s == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert receiver.queue.cursor == 0
    assert receiver.queue.failures == 12
    receiver.run(10_000)
    assert receiver.accepted == [1, 2]
    assert receiver.queue.failures == 0


def test_a_receiver_that_asks_for_rest_gets_it_up_to_the_longest_wait() -> None:
    receiver = Receiver()
    receiver.offer(1)
    receiver.settle(receiver.take(), Outcome.FAILED, wait_s=60)
    assert receiver.queue.wait_ns(receiver.now_ns) == 60 * S
    receiver.now_ns += 60 * S
    receiver.settle(receiver.take(), Outcome.FAILED, wait_s=1e6)
    assert receiver.queue.wait_ns(receiver.now_ns) == 300 * S


def test_an_event_that_is_refused_holds_back_its_subject_alone() -> None:
    receiver = Receiver()
    receiver.offer(1, 2, subject="n1")
    receiver.offer(3, subject="n2")
    receiver.settle(receiver.take(), Outcome.REFUSED)
    receiver.settle(receiver.take(), Outcome.ACCEPTED)
    assert receiver.accepted == [3], "that of n1 waits for another try"
    assert receiver.take() is None
    assert receiver.queue.cursor == 0
    receiver.run(60)
    assert receiver.accepted == [3, 1, 2]
    assert receiver.queue.cursor == 3


def test_an_event_that_is_refused_again_and_again_is_given_up_and_told_in_its_place() -> None:
    receiver = Receiver()
    receiver.offer(1, 2, subject="n1")
    for _ in range(REFUSALS_MAX):
        receiver.settle(receiver.take(), Outcome.REFUSED)
        receiver.now_ns += receiver.queue.wait_ns(receiver.now_ns)
    notice = receiver.take()
    assert isinstance(notice, Waiting)
    assert (notice.news.number, notice.given_up) == (1, "it answered 500")
    assert receiver.queue.given_up == 1
    receiver.settle(notice, Outcome.ACCEPTED)
    receiver.run(60)
    assert receiver.accepted == [1, 2]


def test_a_receiver_that_refuses_everything_gets_to_the_end_all_the_same() -> None:
    receiver = Receiver()
    receiver.offer(*range(1, 8))
    for _ in range(1000):
        if (sent := receiver.take()) is not None:
            receiver.settle(sent, Outcome.REFUSED)
        receiver.now_ns += S
    assert receiver.queue.is_empty
    assert receiver.queue.cursor == 7
    assert receiver.queue.given_up == 7


def test_no_more_than_the_rate_is_sent_in_a_second_and_the_rest_comes_as_one_digest() -> None:
    receiver = Receiver(rate=10)
    receiver.offer(*range(1, 501))
    receiver.run(30)
    assert receiver.accepted == [*range(1, 11), (11, 500)]
    assert receiver.queue.digested == 490
    assert receiver.queue.cursor == 500


def test_what_comes_while_a_digest_waits_for_its_turn_goes_into_it() -> None:
    receiver = Receiver(rate=2)
    receiver.offer(*range(1, 10))
    for _ in range(2):
        receiver.settle(receiver.take(), Outcome.ACCEPTED)
    assert receiver.take() is None
    assert receiver.queue.room == WAITING_MAX
    receiver.offer(*range(10, 5000))
    receiver.now_ns += S
    digest = receiver.take()
    assert isinstance(digest, Digest)
    assert (digest.first, digest.through, digest.found.events) == (3, 4999, 4997)
    assert len(digest.found.gravest) == 50
    assert receiver.queue.digest_through == 4999
    receiver.offer(5000)
    receiver.settle(digest, Outcome.FAILED)
    assert receiver.queue.cursor == 2
    receiver.run(60)
    assert receiver.accepted == [1, 2, (3, 4999), 5000], "nothing overtakes it"


def test_a_digest_that_was_begun_before_a_crash_ends_where_it_ended_then() -> None:
    receiver = Receiver(cursor=2)
    receiver.queue.resume_digest(40)
    receiver.offer(*range(3, 30))
    assert receiver.take() is None, "the rest of it has not been read"
    receiver.offer(*range(30, 45))
    receiver.run(10)
    assert receiver.accepted == [(3, 40), 41, 42, 43, 44]


def test_of_a_digest_before_a_crash_nothing_is_left_that_is_wanted() -> None:
    receiver = Receiver(cursor=2)
    receiver.queue.resume_digest(4)
    for number in (3, 4):
        receiver.queue.offer(number, None)
    receiver.offer(5)
    receiver.run(10)
    assert receiver.accepted == [5]


def test_a_digest_before_a_crash_whose_lines_are_deleted_takes_none_of_those_behind_it() -> None:
    receiver = Receiver(cursor=2)
    receiver.queue.resume_digest(40)
    receiver.offer(30, 41, 42)
    receiver.run(10)
    assert receiver.accepted == [(3, 30), 41, 42]


def test_a_receiver_that_is_known_to_work_again_is_not_left_alone_any_more() -> None:
    receiver = Receiver()
    receiver.offer(1)
    for _ in range(9):
        receiver.queue.note_failure(receiver.now_ns)
    assert receiver.queue.is_resting(receiver.now_ns)
    assert receiver.take() is None
    receiver.queue.end_rest()
    receiver.settle(receiver.take(), Outcome.ACCEPTED)
    assert receiver.accepted == [1]


def test_what_waits_in_memory_is_bounded() -> None:
    receiver = Receiver()
    receiver.offer(*range(1, WAITING_MAX + 1))
    assert receiver.queue.room == 0


class Moody(Receiver):
    """A receiver that is away at times, and refuses some of what it gets."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.rate = self.rng.choice((1, 3, 10))
        super().__init__(rate=self.rate)
        self.offered = 0
        self.told: dict[str, list[int]] = {}
        self.sent_ns: list[int] = []
        self.ends = Counter[str]()
        self._away_until_ns = 0

    def offer_some(self, most: int) -> None:
        """Have something happen now and then, and at times a lot."""
        if self.offered < most and self.rng.random() < 0.3:
            for _ in range(min(self.queue.room, self.rng.choice((1, 2, 40)))):
                self.offered += 1
                self.offer(self.offered, subject=f"n{self.rng.randrange(4)}")

    def answer(self, sent: Waiting | Digest) -> None:
        """Answer a request as it comes to its mind."""
        self.sent_ns.append(self.now_ns)
        if self.now_ns < self._away_until_ns:
            self.settle(sent, Outcome.FAILED)
            return
        if self.rng.random() < 0.02:
            self._away_until_ns = self.now_ns + self.rng.randrange(600) * S
        given_up = self.queue.given_up
        outcome = Outcome.REFUSED if self.rng.random() < 0.2 else Outcome.ACCEPTED
        self.settle(sent, outcome)
        self.ends["given up"] += self.queue.given_up - given_up
        if outcome is Outcome.ACCEPTED:
            self._note_accepted(sent)

    def _note_accepted(self, sent: Waiting | Digest) -> None:
        if isinstance(sent, Digest):
            self.ends["digest"] += sent.found.events
            for numbers in self.told.values():
                numbers.append(sent.through)
        elif not sent.given_up:
            self.ends["accepted"] += 1
            self.told.setdefault(sent.news.line.subject, []).append(sent.news.number)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_a_receiver_answers_order_and_rate_hold_and_nothing_is_lost(seed: int) -> None:
    """Each event is accepted, in a digest or given up; per subject in order; at most the rate."""
    receiver = Moody(seed)
    queue = receiver.queue
    for _ in range(4000):
        receiver.offer_some(300)
        sent = receiver.take()
        if sent is None:
            receiver.now_ns += max(1, min(queue.wait_ns(receiver.now_ns), S))
        else:
            receiver.answer(sent)
    assert queue.is_empty
    assert queue.cursor == receiver.offered
    assert sum(receiver.ends.values()) == receiver.offered
    assert all(numbers == sorted(numbers) for numbers in receiver.told.values())
    apart_ns = zip(receiver.sent_ns, receiver.sent_ns[2 * receiver.rate :], strict=False)
    assert all(later - first >= S for first, later in apart_ns)
