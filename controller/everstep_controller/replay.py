"""Replay: folds a journal again and reports where this version would decide differently."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from everstep_controller.core.actions import Action, Announce
from everstep_controller.core.events import JournaledEvent
from everstep_controller.journal.codec import (
    UnreadableError,
    decode_actions,
    decode_state,
    encode,
)
from everstep_controller.journal.port import JournalBackend, JournalReader, StoredEvent
from everstep_controller.runtime.fold import CoreFactory, Deciding, events_taken


@dataclass(frozen=True, slots=True)
class Difference:
    """An event to which this version answers otherwise than the recorded one did."""

    seq: int
    kind: str
    recorded: tuple[str, ...]
    decided: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of a replay."""

    events: int
    differences: tuple[Difference, ...]


def compare(store: JournalReader, core_factory: CoreFactory) -> Comparison:
    """Fold everything that is kept. Raises UnreadableError."""
    first = store.oldest_snapshot()
    complete = first is None or next(iter(store.events(0, 1)), None) is not None
    core = core_factory(None if complete or first is None else decode_state(first.state))
    after = 0 if complete or first is None else first.seq
    rejected, recorded = store.rejections(), store.decisions(after)
    events, found = 0, []
    for stored in store.events(after):
        taken = list(events_taken(stored, rejected))
        if not taken:
            continue
        events += 1
        called_for = [one for event in taken for one in _decide(core, event, stored)]
        decided = _texts(called_for)
        body = recorded.get(stored.seq)
        before = _texts(decode_actions(body)) if body else ()
        if decided != before:
            found.append(Difference(stored.seq, stored.kind, before, decided))
    return Comparison(events, tuple(found))


def _texts(called_for: Iterable[Action]) -> tuple[str, ...]:
    """Return actions as they are compared; what programs are told of a line is no decision."""
    plain = (replace(one, about=None) if isinstance(one, Announce) else one for one in called_for)
    return tuple(encode(action).decode() for action in plain)


def _decide(core: Deciding, event: JournaledEvent, stored: StoredEvent) -> list[Action]:
    """Return what an event calls for. Raises UnreadableError where the core cannot take it."""
    try:
        return core.handle(event, stored.now_ns)
    except Exception as error:
        raise UnreadableError(
            f"event {stored.seq} ({stored.kind}) makes this version raise {error!r:.200}, and is "
            "not marked as rejected: a start of the controller leaves it out and marks it"
        ) from error


def report(comparison: Comparison) -> Iterator[str]:
    """Yield lines for people."""
    for difference in comparison.differences:
        yield f"event {difference.seq} ({difference.kind}) is decided differently:"
        yield from (f"  - {line}" for line in difference.recorded if line not in difference.decided)
        yield from (f"  + {line}" for line in difference.decided if line not in difference.recorded)
    count = len(comparison.differences)
    yield f"{comparison.events} events replayed, {count} decided differently"


def replay(backend: JournalBackend, core_factory: CoreFactory) -> Comparison:
    """Replay a journal. Raises UnreadableError, and what opening it does."""
    backend.verify()
    with backend.errors(), closing(backend.open_reader()) as store:
        return compare(store, core_factory)
