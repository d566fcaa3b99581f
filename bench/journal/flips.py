"""Flip benchmark: one bit of a journal is changed, at many places, and a controller starts with it.

A start may refuse, with a sentence, or take what was written, where the bit is in nothing that it
reads; never anything else. Half of the places are in the file of a controller that ended, half in
that of one that was killed, with its write-ahead log. What was in the newest transaction of such a
log may be missing: the bit looks like a crash that tore it.
"""

import argparse
import logging
import random
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.session import Benchmark, Part
from harness.table import Row, row
from scale.fleet import Bench, form

from everstep_controller.core.dispatch.core import Core
from everstep_controller.journal.codec import (
    UnreadableError,
    decode_event,
    encode,
    encode_actions,
)
from everstep_controller.journal.port import (
    Announcement,
    DamagedJournalError,
    Mark,
    StoredEvent,
    StoredSnapshot,
)
from everstep_controller.journal.sqlite.compaction import compact
from everstep_controller.journal.sqlite.damage import verify_log
from everstep_controller.journal.sqlite.journal import SqliteJournal
from everstep_controller.journal.sqlite.schema import SchemaError
from everstep_controller.replay import compare
from everstep_controller.runtime.fold import Fold

_PLACES = 10_000
_NODES, _STEPS = 12, 150
_REFUSED, _SAME, _OTHER = "refused", "as it was written", "something else"

Loaded = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Written:
    """Files of a journal, and what a start takes from them, also without the last transaction."""

    files: Mapping[str, bytes]
    taken: tuple[Loaded, ...]


def write_journal(path: Path, *, killed: bool) -> Written:
    """Write a journal as a controller does that ends, or is killed."""
    bench = Bench([f"n{at}" for at in range(_NODES)], [f"n{at}" for at in range(_NODES)])
    form(bench)
    for number in range(_STEPS):
        bench.take(bench.step_of(number))
    rows = [StoredEvent(at, *_row(one)) for at, one in enumerate(bench.journal, start=1)]
    store, core = SqliteJournal(path), Core()
    reader = SqliteJournal(path, read_only=True)  # keeps the log from being removed
    before: Loaded = {}
    for at, stored in enumerate(rows):
        before = loaded(path) if killed and at == len(rows) - 1 else before
        _write_row(store, core, stored, rows)
    taken = (loaded(path), before) if killed else (loaded(path),)
    if not killed:
        reader.close()
        store.close()
    files = {one.name: one.read_bytes() for one in path.parent.iterdir() if "shm" not in one.name}
    if killed:
        store.close()
        reader.close()
    _clear(path.parent)
    return Written(files, taken)


def _clear(folder: Path) -> None:
    for one in folder.iterdir():
        one.unlink()


def _row(stored: StoredEvent) -> tuple[int, str, bytes]:
    return stored.now_ns, stored.kind, stored.body


def _write_row(store: SqliteJournal, core: Core, row: StoredEvent, rows: list[StoredEvent]) -> None:
    """Commit a row, what it led to, and now and then a snapshot of the state."""
    store.begin()
    store.append([row], [Mark(f"n{row.seq % _NODES}", f"outbox-{row.seq % _NODES}", row.seq)])
    if row.seq in (one + 5 for one in _snapshots(len(rows))):
        store.reject(row.seq, "the core could not take it")
    else:
        done = core.handle(decode_event(row.kind, row.body), row.now_ns)
        store.record(row.seq, encode_actions(done))
    store.announce([Announcement(row.seq, row.seq, row.now_ns, "train", "Told", "a line of it")])
    store.set_fact("alive", str(row.now_ns).encode())
    if row.seq in _snapshots(len(rows)):
        state = encode(core.state)
        store.save_snapshot(StoredSnapshot(row.seq, row.now_ns, "bench", state))
        compact(store, row.now_ns - 10_000, 0)
    store.commit()


def _snapshots(rows: int) -> tuple[int, ...]:
    """Return after which events the state is written down."""
    return rows // 3, rows // 2


def loaded(path: Path) -> Loaded:
    """Return what a start, a replay and the list of events take from a journal."""
    verify_log(path)
    store = SqliteJournal(path)
    try:
        store.verify()
        fold = Fold(Core, store)
        for _ in fold.replay():
            pass
        lines = store.announcements("", 10_000)
        return {
            "state": encode(fold.state),
            "marks": store.marks(),
            "outboxes": store.outboxes(),
            "facts": store.fact("alive"),
            "last": (store.last(), store.last_decision(), store.last_announcement()),
            "rejections": store.rejections(),
            "lines": [one for one in lines if one.reason != "LineDamaged"],
            "damaged lines": sum(one.reason == "LineDamaged" for one in lines),
            "replayed": compare(store, Core),
        }
    finally:
        store.close()


def start(folder: Path, written: Written, name: str, bit: int) -> str:
    """Return what a start does with a journal of which one bit is changed."""
    _clear(folder)
    for other, content in written.files.items():
        changed = bytearray(content)
        if other == name:
            changed[bit // 8] ^= 1 << bit % 8
        (folder / other).write_bytes(changed)
    try:
        found = loaded(folder / "journal.sqlite")
    except (DamagedJournalError, UnreadableError, SchemaError, sqlite3.Error, OSError):
        return _REFUSED
    if found["damaged lines"]:
        return _REFUSED
    return _SAME if found in written.taken else _OTHER


def flip(places: int, seed: int) -> Counter[str]:
    """Return how often a start does what, over so many places."""
    rng, counts = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as name:
        folder = Path(name)
        for killed in (False, True):
            _clear(folder)
            written = write_journal(folder / "journal.sqlite", killed=killed)
            names = sorted(written.files)
            sizes = [len(written.files[one]) for one in names]
            for _ in range(places // 2):
                (changed,) = rng.choices(names, sizes)
                bit = rng.randrange(8 * len(written.files[changed]))
                counts[start(folder, written, changed, bit)] += 1
    return counts


def rows(places: int, seed: int) -> list[Row]:
    """Return the rows of the table."""
    counts = flip(places, seed)
    return [
        row("starts that took something else", [counts[_OTHER]], "", target=0),
        row("starts that took what was written", [counts[_SAME]], ""),
        row("starts that refused", [counts[_REFUSED]], ""),
    ]


def measure(options: argparse.Namespace) -> list[Row]:
    """Return the rows; what a start logs of damage is not printed."""
    logging.disable(logging.ERROR)
    return rows(options.places, options.seed)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--places", type=int, default=_PLACES, help="bits that are changed")
    parser.add_argument("--seed", type=int, default=1, help="of the places")


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[Part("flips", 100.0, measure)],
    add_options=_add_options,
    quick={"places": 200},
)
