"""What of findings that flap is journaled: a few rows a minute, and the last word in the end."""

import random

import pytest

from everstep_common.judging.findings import Finding, Severity
from everstep_common.reports import FindingCleared, FindingRaised
from everstep_controller.core.events import FindingSettled, Reported
from everstep_controller.core.model.node import Origin
from everstep_controller.records.finding_rows import FindingEvent, FindingRows

_S = 1_000_000_000
_MINUTE_NS = 60 * _S
# A burst that begins a minute, one that got worse by two degrees, and what was true for a minute.
_ROWS_A_MINUTE = 6


def found(sequence: int, severity: Severity | None, component: str = "gpu/0") -> FindingEvent:
    """Return the record that a component is so bad, or well."""
    origin = Origin("n0", "box", sequence)
    if severity is None:
        return Reported(origin, 0, FindingCleared(component, "Odd", "well"))
    finding = Finding(component=component, condition="Odd", severity=severity, message="odd")
    return Reported(origin, 0, FindingRaised(finding))


class Collector:
    """Rows that are journaled, with their times."""

    def __init__(self) -> None:
        self.rows = FindingRows()
        self.journaled: list[tuple[int, FindingEvent | FindingSettled]] = []

    def tell(self, event: FindingEvent, now_ns: int) -> None:
        if not self.rows.hold(event, now_ns):
            self.journaled.append((now_ns, event))

    def tick(self, now_ns: int) -> None:
        self.journaled += [(now_ns, event) for event in self.rows.take_due(now_ns)]

    def states(self) -> dict[str, Severity]:
        """Return what the journal has in the end."""
        bad: dict[str, Severity] = {}
        for _, event in self.journaled:
            report = event if isinstance(event, FindingSettled) else event.report
            if not isinstance(report, FindingCleared) and report.finding is not None:
                bad[report.finding.component] = report.finding.severity
            elif isinstance(report, FindingCleared | FindingSettled):
                key = report.key
                bad.pop(key.component, None)
        return bad

    def most_a_minute(self) -> int:
        times = [at_ns for at_ns, _ in self.journaled]
        return max(sum(at <= one < at + _MINUTE_NS for one in times) for at in times)


def test_ten_times_a_second_is_a_few_rows_and_none_while_it_goes_on() -> None:
    collector = Collector()
    for tenth in range(6000):
        severity = Severity.FATAL if tenth % 2 else None
        collector.tell(found(tenth, severity), tenth * _S // 10)
        collector.tick(tenth * _S // 10)
    assert len(collector.journaled) <= 4
    assert collector.states() == {"gpu/0": Severity.FATAL}


def test_what_gets_worse_never_waits() -> None:
    collector = Collector()
    for number in range(20):
        collector.tell(found(number, Severity.INFO if number % 2 else None), number)
    collector.tell(found(20, Severity.FATAL), 20)
    assert collector.states() == {"gpu/0": Severity.FATAL}


def _settled(severity: Severity | None) -> FindingSettled:
    event = found(0, severity)
    report = event.report
    if isinstance(report, FindingRaised):
        return FindingSettled("n0", report.finding.key, 0, report.finding, "")
    return FindingSettled("n0", report.key, 0, None, "well")


def test_the_last_word_is_journaled_when_it_has_been_true_for_a_minute() -> None:
    collector = Collector()
    for number in range(21):
        collector.tell(found(number, Severity.INFO if number % 2 else None), number * _S)
    collector.tick(79 * _S)
    assert collector.states() == {"gpu/0": Severity.INFO}
    collector.tick(80 * _S)
    assert collector.journaled[-1] == (80 * _S, _settled(None))
    assert collector.states() == {}


def test_a_new_stream_begins_anew_after_what_is_held() -> None:
    collector = Collector()
    for number in range(6):
        collector.tell(found(number, Severity.INFO if number % 2 == 0 else None), number)
    assert collector.rows.take_node("n0", 6) == [_settled(None)]
    before = len(collector.journaled)
    for number in (6, 7):
        collector.tell(found(number, None), number)
    assert len(collector.journaled) == before + 2


def test_what_the_journal_has_no_room_for_is_written_later_unless_it_is_over_by_then() -> None:
    collector, lost = Collector(), _settled(None)
    collector.rows.not_written(lost)
    assert collector.rows.take_due(1) == [lost]
    collector.rows.not_written(lost)
    collector.tell(found(1, Severity.FATAL), 2)
    assert collector.rows.take_due(3) == []
    assert collector.states() == {"gpu/0": Severity.FATAL}


def test_a_record_that_was_not_taken_is_taken_when_it_is_sent_again() -> None:
    collector = Collector()
    for number in range(7):
        collector.tell(found(number, Severity.INFO if number % 2 else None), number)
    again = found(7, Severity.INFO)
    collector.rows.not_taken(again)
    assert not collector.rows.hold(again, 8)


def test_what_was_quiet_for_a_while_is_forgotten() -> None:
    collector = Collector()
    collector.tell(found(1, Severity.INFO), _S)
    collector.tick(10 * _MINUTE_NS)
    assert not collector.rows._told


@pytest.mark.parametrize("seed", range(60))
def test_whatever_comes_and_goes_rows_are_few_and_the_last_word_arrives(seed: int) -> None:
    rng, collector = random.Random(seed), Collector()
    components = [f"gpu/{number}" for number in range(rng.choice([1, 1, 3]))]
    states: dict[str, Severity | None] = {}
    now_ns = 0
    for sequence in range(rng.randrange(2, 1500)):
        now_ns += round(rng.choice([0.05, 0.1, 0.1, 1, 30] if rng.random() < 0.1 else [0.1]) * _S)
        component = rng.choice(components)
        states[component] = rng.choice([None, *Severity])
        collector.tick(now_ns)
        collector.tell(found(sequence, states[component], component), now_ns)
    for _ in range(70):
        now_ns += _S
        collector.tick(now_ns)
    assert collector.states() == {name: bad for name, bad in states.items() if bad}
    assert collector.most_a_minute() <= _ROWS_A_MINUTE * len(components)


def test_what_was_not_taken_and_is_never_sent_again_is_forgotten() -> None:
    collector = Collector()
    event = found(1, Severity.INFO)
    collector.tell(event, 0)
    collector.rows.not_taken(event)
    collector.tick(2 * _MINUTE_NS)
    assert collector.rows.nodes() == []
