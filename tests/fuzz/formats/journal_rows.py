"""Rows of the controller's journal: events, decisions and snapshots, folded and compared."""

import logging
import sqlite3
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from everstep_common.hints import hints_of
from everstep_controller.core.actions import Action
from everstep_controller.core.dispatch.core import EVENT_KINDS, Core
from everstep_controller.core.events import REPORTS, EventBatch, Reported
from everstep_controller.core.model.state import State
from everstep_controller.journal.codec import UnreadableError
from everstep_controller.journal.port import DamagedJournalError, StoredEvent
from everstep_controller.journal.sqlite.journal import SqliteJournal
from everstep_controller.journal.sqlite.schema import SchemaError, add_functions
from everstep_controller.replay import compare
from everstep_controller.runtime.fold import Fold
from fuzz.choices import Choices, Maker, option
from fuzz.edits import edited
from fuzz.format import Format, Handler
from fuzz.shapes import Known, payload, record_of, value_of

_NODES = ("node-1", "node-1", "node-2")
_KNOWN: Known = {
    "node": option(*_NODES),
    "peer": option(*_NODES),
    "job": option("demo", "demo", "other"),
    "outbox": option("outbox-1", "outbox-2"),
    "sequence": option(*range(1, 40)),
    "generation": option(1, 1, 0, 2),
    "rank": option(0, 1),
    "timer": option("calm/", "silence/node-1", "nobody/knows", ""),
}
_ROWS_MAX = 8
_EVENTS = sorted(EVENT_KINDS, key=lambda kind: kind.__name__)
# Where every life begins: without these the others concern nobody.
_BEGINNING = ("ControllerStarted", "NodeConnected", "NodeConnected")


@dataclass(frozen=True, slots=True)
class JournalCase:
    """Rows of a journal; ``damage``: what is done to the file itself."""

    events: tuple[tuple[str, int, bytes], ...]
    decision: bytes | None
    rejected: int | None
    snapshot: bytes | None
    damage: tuple[int, bytes] | None


def _event_maker(kind: type) -> Maker[object]:
    if kind not in REPORTS:
        return record_of(kind, _KNOWN)
    fields = {
        name: value_of(kind if name == "report" else hint, _KNOWN)
        for name, hint in hints_of(Reported).items()
    }
    return lambda choices: {name: make(choices) for name, make in fields.items()}


_MAKERS = {kind.__name__: _event_maker(kind) for kind in _EVENTS}
_STATE = record_of(State, _KNOWN)
_ACTIONS = [(kind.__name__, record_of(kind, _KNOWN)) for kind in Action.__args__]


def _make(choices: Choices) -> JournalCase:
    names = list(_BEGINNING) if choices.below(4) else []
    names += [choices.of(list(_MAKERS)) for _ in range(choices.below(_ROWS_MAX))]
    now_ns, events = 10**18, []
    for name in names:
        now_ns += choices.of((10**9, 0, 1, 3600 * 10**9, -1, 10**17))
        events.append((*_row(name, choices), now_ns))
    return JournalCase(
        tuple((kind, min(at_ns, 2**63 - 1), body) for kind, body, at_ns in events),
        _decision(choices) if choices.rarely(6) else None,
        choices.below(4) if choices.rarely(8) else None,
        _snapshot(choices) if choices.rarely(10) else None,
        (choices.below(2**16), choices.bytes(64)) if choices.rarely(20) else None,
    )


def _row(name: str, choices: Choices) -> tuple[str, bytes]:
    if choices.rarely(16):
        return choices.of(("EventBatch", "Nobody", "", name)), choices.bytes(64)
    body = _MAKERS[name](choices)
    if choices.rarely(8):
        several = [{"kind": name, "body": body}] * choices.of((1, 2, 0, 60))
        return EventBatch.__name__, edited(payload(several), choices)
    return name, edited(payload(body), choices)


def _decision(choices: Choices) -> bytes:
    name, make = choices.of(_ACTIONS)
    return edited(payload([{"kind": name, "body": make(choices)}]), choices)


def _snapshot(choices: Choices) -> bytes:
    packed = zlib.compress(edited(payload(_STATE(choices)), choices), 1)
    return edited(packed, choices)


@asynccontextmanager
async def _world(folder: Path) -> AsyncIterator[Handler]:
    path, damaged = folder / "journal.sqlite", folder / "damaged.sqlite"
    store = SqliteJournal(path)
    rows = sqlite3.connect(path)
    add_functions(rows)
    store.execute("PRAGMA synchronous = OFF")
    rows.execute("PRAGMA synchronous = OFF")
    # A row that the core cannot take is left out, and told of: that is what the format allows.
    told = logging.getLogger("everstep_controller.runtime.fold")
    told.disabled = True

    async def handle(case: JournalCase) -> None:
        _write(rows, store, case)
        _fold(path)
        if case.damage is not None:
            rows.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            _damage(path, damaged, *case.damage)

    try:
        yield handle
    finally:
        rows.close()
        store.close()
        told.disabled = False


def _write(rows: sqlite3.Connection, store: SqliteJournal, case: JournalCase) -> None:
    """Write a case with the checksums that it would have: decoding is what is tried."""
    for table in ("event", "decision", "rejection", "snapshot"):
        rows.execute(f"DELETE FROM {table}")
    rows.execute("UPDATE head SET seq = 0, link = x'', checksum = checksum(0, x'', 0, x'')")
    if case.snapshot is not None:
        values = (1, 1, "0", case.snapshot)
        rows.execute(
            "INSERT INTO snapshot VALUES (?1, ?2, ?3, ?4, checksum(?1, ?2, ?3, ?4))", values
        )
    rows.commit()
    told = enumerate(case.events, start=1)
    store.begin()
    store.append([StoredEvent(seq, at, kind, body) for seq, (kind, at, body) in told], ())
    if case.decision is not None:
        store.record(1, case.decision)
    if case.rejected is not None:
        store.reject(case.rejected, "x", (0, 2))
    store.commit()


def _fold(path: Path) -> None:
    """Open a journal as a start and as `replay` do; by main.py, these errors end in a sentence."""
    for use in (_replay, lambda store: compare(store, Core)):
        store = SqliteJournal(path, read_only=True)
        try:
            with suppress(UnreadableError, DamagedJournalError, sqlite3.Error):
                store.last_decision()
                store.marks()
                store.last_announcement()
                use(store)
        finally:
            store.close()


def _replay(store: SqliteJournal) -> None:
    fold = Fold(Core, store)
    for _ in fold.replay():
        assert fold.state.index == fold.state.compute_index(), "the index is not the records"


def _damage(path: Path, damaged: Path, place: int, content: bytes) -> None:
    whole = bytearray(path.read_bytes())
    begin = place * len(whole) // 2**16
    whole[begin : begin + len(content)] = content
    damaged.write_bytes(whole)
    with suppress(UnreadableError, DamagedJournalError, SchemaError, sqlite3.Error, OSError):
        SqliteJournal(damaged).close()
        _fold(damaged)


JOURNAL_ROWS = Format(
    _make,
    _world,
    (
        "everstep_controller.journal.codec",
        "everstep_controller.journal.sqlite.store",
        "everstep_controller.runtime.fold",
        "everstep_controller.core",
    ),
    1000,
)
