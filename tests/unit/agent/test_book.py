"""The book of findings: debounce, hold, clear with evidence."""

import dataclasses

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.findings import dump_findings, load_findings
from everstep_common.clock import Stamp
from everstep_common.judging.book import Changes, FindingBook
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
_RULE = CONDITIONS["LinkSlow"]
_BOUNCING: list[Judgement] = [_SLOW if poll % 2 else _FAST for poll in range(100)]


def _feed(book: FindingBook, *judgements: Judgement, now: Stamp = _NOW) -> list[Changes]:
    return [changes for one in judgements if (changes := book.enter_judgements([one], now))]


def test_a_link_that_bounces_is_not_raised() -> None:
    assert _feed(FindingBook(CONDITIONS), *[_SLOW] * (_RULE.raise_after - 1), _FAST) == []
    assert _feed(FindingBook(CONDITIONS), *_BOUNCING) == []


def test_a_link_that_stays_slow_is_raised_once() -> None:
    (changes,) = _feed(FindingBook(CONDITIONS), *[_SLOW] * 100)
    assert [known.finding for known in changes.raised] == [_FINDING]
    assert changes.raised[0].since == _NOW


def test_a_poll_that_could_not_be_read_counts_as_neither() -> None:
    polls: list[Judgement] = [_SLOW, _UNREADABLE]
    polls *= _RULE.raise_after
    assert len(_feed(FindingBook(CONDITIONS), *polls)) == 1
    book = FindingBook(CONDITIONS)
    _feed(book, *[_SLOW] * _RULE.raise_after)
    assert _feed(book, *[_UNREADABLE] * 1000) == []
    assert book.open_findings


def test_it_clears_after_enough_healthy_polls_with_their_evidence() -> None:
    book = FindingBook(CONDITIONS)
    _feed(book, *[_SLOW] * _RULE.raise_after)
    assert _feed(book, *[_FAST] * (_RULE.clear_after - 1), _SLOW) == []
    (changes,) = _feed(book, *[_FAST] * _RULE.clear_after)
    assert changes.cleared[0].key == FindingKey("link/mlx5_0/1", "LinkSlow")
    assert changes.cleared[0].evidence == "400 Gbit/s"
    assert not book.open_findings


def test_nothing_is_raised_in_the_grace_after_boot() -> None:
    early = Stamp("boot-1", _RULE.boot_grace_ns - 1, 7)
    book = FindingBook(CONDITIONS)
    assert _feed(book, *[_SLOW] * 1000, now=early) == []
    assert len(_feed(book, _SLOW)) == 1


def test_a_finding_that_got_worse_is_told_again_and_keeps_its_beginning() -> None:
    book = FindingBook(CONDITIONS)
    mild = dataclasses.replace(_FINDING, severity=Severity.DEGRADED)
    _feed(book, *[Faulty(mild)] * _RULE.raise_after)
    (changes,) = _feed(book, _SLOW, now=Stamp("boot-1", _NOW.boot_ns + 1, 8))
    assert changes.raised[0].finding.severity is Severity.FATAL
    assert changes.raised[0].since == _NOW


def test_other_numbers_in_the_message_are_no_news() -> None:
    book = FindingBook(CONDITIONS)
    _feed(book, *[_SLOW] * _RULE.raise_after)
    assert _feed(book, Faulty(dataclasses.replace(_FINDING, message="slow for 7 s"))) == []


def test_fatal_findings_are_those_with_which_a_node_cannot_train() -> None:
    book = FindingBook(CONDITIONS)
    _feed(book, *[_SLOW] * _RULE.raise_after)
    assert book.fatal_findings() == (_FINDING,)


def test_open_findings_survive_being_written_and_read() -> None:
    book = FindingBook(CONDITIONS)
    _feed(book, *[_SLOW] * _RULE.raise_after)
    again = FindingBook(CONDITIONS, load_findings(dump_findings(book.open_findings)))
    assert again.open_findings == book.open_findings
    assert load_findings("not what was written") == ()


def test_every_condition_says_what_clears_it() -> None:
    for condition in CONDITIONS.values():
        assert condition.clears_when
        assert condition.raise_after >= 1
        assert condition.clear_after >= 1
