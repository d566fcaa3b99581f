"""Invariants of several controllers: each is kept by a sound run, and broken by what breaks it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from chaos.evidence import (
    ChainEnds,
    ControllerEnd,
    EventRow,
    Evidence,
    Note,
    RecordKey,
    Taking,
    WrittenRow,
)
from chaos.invariants import INVARIANTS, checked, violations
from everstep_controller.journal.checksums import BEGINNING, linked
from everstep_controller.journal.port import StoredEvent


def _rows(kinds: Sequence[str]) -> list[EventRow]:
    rows, link = list[EventRow](), BEGINNING
    for at, kind in enumerate(kinds, start=1):
        link = linked(link, StoredEvent(at, at, kind, b"{}"))
        rows.append(EventRow(at, at, kind, b"{}", link))
    return rows


def _note(kind: str, node: str = "gpu-1", **told: object) -> Note:
    return Note(1, node, kind, told)


def _recorded(sequence: int, what: str = "FindingRaised") -> Note:
    return _note("recorded", outbox="o", sequence=sequence, what=what)


def _ack(through: int) -> Note:
    return _note("ack", outbox="o", through=through)


def _order(kind: str, term: int, order: str = "g1/stop", what: str = "stop_generation") -> Note:
    return _note(kind, term=term, order=order, what=what)


ROWS = _rows(["ControllerStarted", "Reported", "Reported", "ControllerStarted", "Reported"])
LOST = "CRITICAL x: process 1 has taken the journal's lease (term 2; this controller's was 1)"
SOUND = Evidence(
    notes=[
        _note("welcome", term=1),
        _recorded(1),
        _ack(1),
        _order("taken", 1),
        _recorded(2),
        _recorded(3, "StepsCompleted"),
        _note("welcome", term=2),
        _ack(3),
        _order("refused", 1),
        _order("taken", 2),
        _recorded(4),
    ],
    rows=ROWS,
    ends=ChainEnds(0, BEGINNING, 5, ROWS[-1].link),
    written=[WrittenRow(at, "a" if at < 4 else "b") for at in range(1, 6)],
    takings=[Taking(1, "a"), Taking(1, ""), Taking(2, "b")],
    journaled=[RecordKey("o", 1), RecordKey("o", 2)],
    differences=[],
    replayed=5,
    controllers=[
        ControllerEnd("ctl-1", 1, 1, was_killed=False, log=LOST),
        ControllerEnd("ctl-2", 1, -9, was_killed=True, log="cut in the mid"),
        ControllerEnd("ctl-3", 1, 0, was_killed=False, log="bye", was_asked=True),
    ],
)


def test_a_sound_run_violates_nothing() -> None:
    assert {name: found for name, found in violations(SOUND).items() if found} == {}
    assert checked(SOUND).keys() == INVARIANTS.keys()
    assert checked(SOUND)["acknowledged records exactly once"] == 2


def _broken(name: str, evidence: Evidence) -> str:
    """Return the one sentence of an invariant, and see that no other one is broken."""
    found = violations(evidence)
    assert [one for one, lines in found.items() if lines] == [name]
    (sentence,) = found[name]
    return sentence


def _without(row: int) -> Evidence:
    return replace(SOUND, rows=[one for one in ROWS if one.seq != row])


@pytest.mark.parametrize("row", [1, 3])
def test_an_event_that_is_missing_is_found(row: int) -> None:
    found = violations(_without(row))["one total order"]
    assert found[0] == f"event {row + 1} follows event {row - 1}"


def test_the_last_event_that_is_missing_is_found() -> None:
    told = _broken("one total order", _without(5))
    assert told == "the events end with 4, and the lease's row says 5"


def test_an_event_that_was_changed_is_found() -> None:
    rows = [replace(one, body=b"[]") if one.seq == 2 else one for one in ROWS]
    told = _broken("one total order", replace(SOUND, rows=rows))
    assert told == "event 2 (Reported) is not linked to the one before it"


ONCE = "acknowledged records exactly once"


def test_an_acknowledged_record_that_is_lost_is_found() -> None:
    told = _broken(ONCE, replace(SOUND, journaled=SOUND.journaled[:1]))
    assert told == "record 2 of outbox o (FindingRaised) was acknowledged and lost"


def test_a_record_that_is_journaled_twice_is_found() -> None:
    told = _broken(ONCE, replace(SOUND, journaled=[*SOUND.journaled, RecordKey("o", 2)]))
    assert told == "record 2 of outbox o is journaled 2 times"


def test_what_an_agent_had_not_sent_when_it_was_killed_is_not_acknowledged_to_the_next() -> None:
    notes = [*SOUND.notes, _note("begun", outbox="o"), _recorded(100), _ack(100)]
    known = [*SOUND.journaled, RecordKey("o", 100)]
    assert not violations(replace(SOUND, notes=notes, journaled=known))[ONCE]
    assert violations(replace(SOUND, notes=notes))[ONCE]


def test_a_finding_that_flaps_needs_no_row_of_its_own() -> None:
    flapping = _note("recorded", outbox="o", sequence=5, what="FindingRaised", flaps=True)
    notes = [*SOUND.notes, flapping, replace(_recorded(6)), _ack(6)]
    found = violations(replace(SOUND, notes=notes))[ONCE]
    assert found == [
        "record 4 of outbox o (FindingRaised) was acknowledged and lost",
        "record 6 of outbox o (FindingRaised) was acknowledged and lost",
    ]


def test_a_welcome_that_takes_back_what_was_acknowledged_is_found() -> None:
    told = _broken(ONCE, replace(SOUND, notes=[*SOUND.notes, _note("forgotten")]))
    assert told == "gpu-1 was welcomed with less than had been acknowledged to it"


def test_a_record_that_nobody_acknowledged_may_be_in_the_journal_once() -> None:
    known = [*SOUND.journaled, RecordKey("o", 4)]
    assert violations(replace(SOUND, journaled=known))[ONCE] == []


def test_a_decision_that_differs_is_found() -> None:
    told = _broken(
        "decisions follow from the journal", replace(SOUND, differences=["event 7 (Reported)"])
    )
    assert told == "a replay decides otherwise: event 7 (Reported)"


def test_an_agent_that_takes_an_older_term_is_found() -> None:
    notes = [*SOUND.notes, _order("taken", 1)]
    told = _broken("no agent takes an older term", replace(SOUND, notes=notes))
    assert told == "gpu-1 took order g1/stop of term 1 after it knew of term 2"


def test_an_agent_that_takes_an_older_term_after_a_welcome_alone_is_found() -> None:
    notes = [*SOUND.notes, _note("welcome", term=3), _order("taken", 2)]
    told = _broken("no agent takes an older term", replace(SOUND, notes=notes))
    assert told == "gpu-1 took order g1/stop of term 2 after it knew of term 3"


def test_another_agent_may_not_know_of_the_newer_term() -> None:
    notes = [*SOUND.notes, replace(_order("taken", 1), node="gpu-2")]
    assert not violations(replace(SOUND, notes=notes))["no agent takes an older term"]


def test_an_order_whose_id_comes_with_another_meaning_is_found() -> None:
    notes = [*SOUND.notes, _order("taken", 2, what="start_generation")]
    told = _broken("an order's id has one meaning", replace(SOUND, notes=notes))
    assert told == "order g1/stop to gpu-1 was stop_generation, and then start_generation"


WRITER = "no row under an older term"


def test_a_row_that_an_older_one_wrote_after_a_newer_one_is_found() -> None:
    written = [*SOUND.written, WrittenRow(6, "a")]
    told = _broken(WRITER, replace(SOUND, written=written))
    assert told == "event 6 was written under term 1, after the first row of term 2"


def test_a_row_of_somebody_who_never_held_the_lease_is_found() -> None:
    written = [*SOUND.written, WrittenRow(6, "c")]
    told = _broken(WRITER, replace(SOUND, written=written))
    assert told == "event 6 was written by 'c', which never held the lease"


def test_a_lease_whose_term_goes_back_or_that_is_taken_twice_is_found() -> None:
    takings = [*SOUND.takings, Taking(1, "c")]
    assert _broken(WRITER, replace(SOUND, takings=takings)) == "the lease's term went from 2 to 1"
    takings = [*SOUND.takings, Taking(3, "b")]
    assert _broken(WRITER, replace(SOUND, takings=takings)) == "b holds terms 2 and 3"


def _ended(status: int, log: str) -> Evidence:
    end = ControllerEnd("ctl-1", 2, status, was_killed=False, log=log)
    return replace(SOUND, controllers=[*SOUND.controllers, end])


@pytest.mark.parametrize(
    ("status", "log", "sentence"),
    [
        (1, "INFO a\nINFO b", "ctl-1, life 2 ended with 1, and said last: INFO b"),
        (1, "", "ctl-1, life 2 ended with 1, and said last: nothing"),
        (0, "bye", "ctl-1, life 2 ended with 0, and nobody had asked it to"),
        (
            1,
            f"Traceback (most recent call last):\nValueError\n{LOST}",
            f"ctl-1, life 2: a traceback: Traceback (most recent call last): | ValueError | {LOST}",
        ),
    ],
)
def test_an_end_that_is_not_told_is_found(status: int, log: str, sentence: str) -> None:
    assert _broken("ends are told", _ended(status, log)) == sentence


def test_a_traceback_of_a_controller_that_was_killed_is_found() -> None:
    killed = replace(SOUND.controllers[1], log="Traceback\nKeyError")
    told = _broken("ends are told", replace(SOUND, controllers=[killed]))
    assert told == "ctl-2, life 1: a traceback: Traceback | KeyError"
