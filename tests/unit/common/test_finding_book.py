"""The book of findings: debounce, hold, clear with evidence."""

import dataclasses
import random

import pytest

from everstep_common.clock import Stamp
from everstep_common.judging.book import BookChanges, FindingBook
from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity
from everstep_common.judging.judgement import Faulty, Healthy, Judgement, Unknown

_NOW = Stamp("boot-1", 3600 * 10**9, 7)
_FINDING = Finding(
    component="link/mlx5_0/1",
    condition="LinkSlow",
    severity=Severity.FATAL,
    message="it is slow",
    mode=Mode.ADVISE,
)
_SLOW = Faulty(_FINDING)
_FAST = Healthy(_FINDING.key, "400 Gbit/s")
_UNREADABLE = Unknown(_FINDING.key, "cannot be read")
_RULE = Condition(
    name="LinkSlow",
    component="link/NAME",
    meaning="a link is slow",
    source="this test",
    clears_when="it is fast",
    raise_after=3,
    clear_after=4,
    boot_grace_ns=120 * 10**9,
    mode=Mode.ADVISE,
)
_EVENT = dataclasses.replace(
    _RULE, name="Odd", raise_after=1, clear_after=1, boot_grace_ns=0, quiet_ns=60 * 10**9
)
_CONDITIONS = {one.name: one for one in (_RULE, _EVENT)}
_BOUNCING: list[Judgement] = [_SLOW if poll % 2 else _FAST for poll in range(100)]


def _feed(book: FindingBook, *judgements: Judgement, now: Stamp = _NOW) -> list[BookChanges]:
    return [changes for one in judgements if (changes := book.enter_judgements([one], now))]


def test_a_link_that_bounces_is_not_raised() -> None:
    assert _feed(FindingBook(_CONDITIONS), *[_SLOW] * (_RULE.raise_after - 1), _FAST) == []
    assert _feed(FindingBook(_CONDITIONS), *_BOUNCING) == []


def test_a_link_that_stays_slow_is_raised_once() -> None:
    (changes,) = _feed(FindingBook(_CONDITIONS), *[_SLOW] * 100)
    assert [known.finding for known in changes.raised] == [_FINDING]
    assert changes.raised[0].since == _NOW


def test_a_poll_that_could_not_be_read_counts_as_neither() -> None:
    polls: list[Judgement] = [_SLOW, _UNREADABLE]
    polls *= _RULE.raise_after
    assert len(_feed(FindingBook(_CONDITIONS), *polls)) == 1
    book = FindingBook(_CONDITIONS)
    _feed(book, *[_SLOW] * _RULE.raise_after)
    assert _feed(book, *[_UNREADABLE] * 1000) == []
    assert book.open_findings


def test_it_clears_after_enough_healthy_polls_with_their_evidence() -> None:
    book = FindingBook(_CONDITIONS)
    _feed(book, *[_SLOW] * _RULE.raise_after)
    assert _feed(book, *[_FAST] * (_RULE.clear_after - 1), _SLOW) == []
    (changes,) = _feed(book, *[_FAST] * _RULE.clear_after)
    assert changes.cleared[0].key == FindingKey("link/mlx5_0/1", "LinkSlow")
    assert changes.cleared[0].evidence == "400 Gbit/s"
    assert not book.open_findings


def test_nothing_is_raised_in_the_grace_after_boot() -> None:
    early = Stamp("boot-1", _RULE.boot_grace_ns - 1, 7)
    book = FindingBook(_CONDITIONS)
    assert _feed(book, *[_SLOW] * 1000, now=early) == []
    assert len(_feed(book, _SLOW)) == 1


def test_a_finding_that_got_worse_is_told_again_and_keeps_its_beginning() -> None:
    book = FindingBook(_CONDITIONS)
    mild = dataclasses.replace(_FINDING, severity=Severity.DEGRADED)
    _feed(book, *[Faulty(mild)] * _RULE.raise_after)
    (changes,) = _feed(book, _SLOW, now=Stamp("boot-1", _NOW.boot_ns + 1, 8))
    assert changes.raised[0].finding.severity is Severity.FATAL
    assert changes.raised[0].since == _NOW


def test_other_numbers_in_the_message_are_no_news() -> None:
    book = FindingBook(_CONDITIONS)
    _feed(book, *[_SLOW] * _RULE.raise_after)
    assert _feed(book, Faulty(dataclasses.replace(_FINDING, message="slow for 7 s"))) == []


def test_fatal_findings_are_those_with_which_a_node_cannot_train() -> None:
    book = FindingBook(_CONDITIONS)
    _feed(book, *[_SLOW] * _RULE.raise_after)
    assert book.fatal_findings() == (_FINDING,)


def test_a_book_is_idle_when_nothing_is_open_and_nothing_on_its_way() -> None:
    book = FindingBook(_CONDITIONS)
    idle = [book.idle]
    for judgements in ([_SLOW], [_SLOW] * _RULE.raise_after, [_FAST] * _RULE.clear_after):
        _feed(book, *judgements)
        idle.append(book.idle)
    assert idle == [True, False, False, True], "one look counts already"


def test_an_event_ends_when_it_was_not_seen_again_for_as_long_as_its_condition_asks() -> None:
    book, event = FindingBook(_CONDITIONS), dataclasses.replace(_FINDING, condition="Odd")
    _feed(book, Faulty(event))
    last = Stamp("boot-1", _NOW.boot_ns + 40 * 10**9, 7)
    assert book.enter_judgements([Faulty(event)], last).again
    soon, late = (Stamp("boot-1", last.boot_ns + s * 10**9, 7) for s in (59, 60))
    assert book.judge_quiet_events(soon) == []
    (over,) = book.judge_quiet_events(late)
    (changes,) = _feed(book, over)
    assert changes.cleared[0].evidence == "not seen again for 1 min"


def test_the_operators_mode_goes_before_that_of_the_condition() -> None:
    book = FindingBook(_CONDITIONS, modes={"LinkSlow": Mode.OBSERVE})
    (changes,) = _feed(book, *[_SLOW] * _RULE.raise_after)
    assert changes.raised[0].finding.mode is Mode.OBSERVE


def _at(second: float) -> Stamp:
    return Stamp("boot-1", int((1000 + second) * 10**9), 8)


def _flap(book: FindingBook, until_s: int) -> int:
    """Have a detector change its mind ten times a second; return how often that was told."""
    told = 0
    for tenth in range(until_s * 10):
        judgement = Healthy(_ODD.key, "well") if tenth % 2 else Faulty(_ODD)
        changes = book.enter_judgements([judgement], _at(tenth / 10))
        told += len(changes.raised) + len(changes.cleared)
    return told


_ODD = dataclasses.replace(_FINDING, condition="Odd")


def test_what_comes_and_goes_ten_times_a_second_is_told_a_few_times() -> None:
    assert _flap(FindingBook(_CONDITIONS), 600) == 5


def test_what_came_and_went_is_over_when_it_was_well_for_a_minute() -> None:
    book = FindingBook(_CONDITIONS)
    _flap(book, 10)
    assert book.open_keys == (_ODD.key,)
    well = Healthy(_ODD.key, "well")
    assert not book.enter_judgements([well], _at(60))
    assert book.enter_judgements([well], _at(70)).cleared
    assert not book.open_keys


def test_a_detector_that_calls_it_well_only_once_is_asked_no_more_after_that_minute() -> None:
    book = FindingBook({"Odd": dataclasses.replace(_EVENT, quiet_ns=0)})
    _flap(book, 10)
    assert book.judge_quiet_events(_at(60)) == []
    assert book.enter_judgements(book.judge_quiet_events(_at(70)), _at(70)).cleared


def _odd(severity: Severity) -> Faulty:
    return Faulty(dataclasses.replace(_ODD, severity=severity))


def test_what_gets_worse_and_better_ten_times_a_second_is_told_a_few_times() -> None:
    book, told = FindingBook(_CONDITIONS), 0
    for tenth in range(6000):
        judgement = _odd(Severity.DEGRADED if tenth % 2 else Severity.FATAL)
        told += len(book.enter_judgements([judgement], _at(tenth / 10)).raised)
    assert told <= 5
    assert book.fatal_findings()


def test_what_got_better_is_told_when_it_was_so_for_a_minute() -> None:
    book = FindingBook(_CONDITIONS)
    for tenth in range(100):
        judgement = _odd(Severity.DEGRADED if tenth % 2 else Severity.FATAL)
        book.enter_judgements([judgement], _at(tenth / 10))
    # Nobody judges it again, as of what a line of a log says.
    assert not book.enter_judgements([], _at(69)).raised
    (entry,) = book.enter_judgements([], _at(70)).raised
    assert entry.finding.severity is Severity.DEGRADED
    assert entry.since == _at(0)
    assert not book.enter_judgements([], _at(200)).raised


_WORDS: tuple[Judgement, ...] = (Healthy(_ODD.key, "well"), *map(_odd, Severity))


class _Listener:
    """What the controller knows of the finding by what it is told, and how often it was."""

    def __init__(self) -> None:
        self.severity: Severity | None = None
        self.told: list[float] = []

    def hear(self, changes: BookChanges, second: float) -> None:
        for one in changes.cleared:
            self.severity = None
            self.told.append(second)
            assert one.key == _ODD.key
        for entry in changes.raised:
            self.severity = entry.finding.severity
            self.told.append(second)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_detector_says_little_is_told_and_the_last_word_arrives(seed: int) -> None:
    rng, listener = random.Random(seed), _Listener()
    book = FindingBook({"Odd": dataclasses.replace(_EVENT, quiet_ns=0)})
    second, word, ends = 0.0, _WORDS[0], rng.uniform(1, 250)
    # In the end it stays as it is for over two minutes.
    while second < ends + 130:
        second += rng.choice([0.05, 0.1, 0.1, 0.2, 5.0 if rng.random() < 0.02 else 0.1])
        if second < ends:
            word = rng.choice(_WORDS)
        listener.hear(book.enter_judgements([word], _at(second)), second)
    assert listener.severity is (word.finding.severity if isinstance(word, Faulty) else None)
    told = listener.told
    # Three times raised and over, and each time it may get worse twice; of 600 words.
    assert max((sum(at <= one < at + 60 for one in told) for at in told), default=0) <= 16
