"""Journal codec: events, actions and the state as JSON and back, each under its type's name."""

import typing
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from everstep_common.judging.findings import Mode
from everstep_common.reports import RANK_REPORTS, Phase, RankReport
from everstep_controller.core.accounting.committed_steps import (
    CommittedStep,
    CommittedSteps,
    StepColumns,
)
from everstep_controller.core.actions import About, Action
from everstep_controller.core.dispatch.core import EVENT_KINDS
from everstep_controller.core.events import (
    REPORTS,
    Event,
    EventBatch,
    JobProgressed,
    JournaledEvent,
    Reported,
    SettingsApplied,
)
from everstep_controller.core.model.job import MemberPhases, Members
from everstep_controller.core.model.rank_reports import RankReports
from everstep_controller.core.model.state import State
from everstep_controller.journal import flat_nodes, progress_columns

# Typed as Any: which reports there are is known only at run time.
_REPORTED: Any = Reported
# A report is stored under the name of its record, whatever carries it.
_EVENT_TYPES: dict[str, Any] = {
    kind.__name__: _REPORTED[kind] if kind in REPORTS else kind for kind in EVENT_KINDS
}
_EVENTS: dict[str, msgspec.json.Decoder[Event]] = {
    name: msgspec.json.Decoder(stored) for name, stored in _EVENT_TYPES.items()
}
_ACTIONS: dict[str, type[Action]] = {kind.__name__: kind for kind in typing.get_args(Action)}
# A batch of progress, which is not stored as other batches are.
_PROGRESS = "JobsProgressed"
_RANK_REPORTS: dict[str, type[RankReport]] = {kind.__name__: kind for kind in RANK_REPORTS}


def _plain(value: object) -> object:
    """Return what is stored of a value that msgspec does not know."""
    if isinstance(value, CommittedSteps):
        return value.columns()
    if isinstance(value, RankReports):
        return [(type(report).__name__, report) for report in value]
    raise NotImplementedError(f"{type(value).__name__} cannot be stored")


def _restored(kind: type, stored: Any) -> object:  # noqa: ANN401 - whatever stands there
    """Return the value again; reports of kinds that this version does not know are left out."""
    if kind is Members:
        return Members(stored)
    if kind is MemberPhases:
        return MemberPhases(msgspec.convert(stored, dict[str, Phase]))
    if kind is CommittedSteps:
        return _restored_steps(stored)
    if kind is RankReports:
        known = ((_RANK_REPORTS.get(name), body) for name, body in stored)
        return RankReports(msgspec.convert(body, of) for of, body in known if of is not None)
    raise NotImplementedError(f"{kind.__name__} cannot be stored")


def _restored_steps(stored: Any) -> CommittedSteps:  # noqa: ANN401 - whatever stands there
    """Return the steps of a ledger; before 2026-11-23 they were written down one by one."""
    if isinstance(stored, list):
        return CommittedSteps(msgspec.convert(stored, list[CommittedStep]))
    return CommittedSteps.of(msgspec.convert(stored, StepColumns))


_ABOUT = msgspec.json.Decoder(About)
_STATE = msgspec.json.Decoder(State, dec_hook=_restored)
_ENCODER = msgspec.json.Encoder(enc_hook=_plain)


class UnreadableError(ValueError):
    """A stored value does not have the shape that this version knows."""


class _Stored(msgspec.Struct):
    kind: str
    body: msgspec.Raw


_SEVERAL = msgspec.json.Decoder(list[_Stored])
# What decoding raises for what cannot be read; for text that is no UTF-8, and for what is nested
# too deeply, these are Python's own errors.
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def kind_of(value: JournaledEvent | Action) -> str:
    """Return the name under which a value is stored."""
    if isinstance(value, EventBatch) and _progress_of(value):
        return _PROGRESS
    return (type(value.report) if isinstance(value, Reported) else type(value)).__name__


def encode(value: JournaledEvent | Action | State) -> bytes:
    """Return the JSON of a value."""
    if isinstance(value, EventBatch):
        progress = _progress_of(value)
        return progress_columns.pack(progress) if progress else _encode_several(value.events)
    return _ENCODER.encode(value)


def _progress_of(batch: EventBatch) -> Sequence[JobProgressed]:
    """Return the events of a batch of progress; none of another one."""
    told = [one for one in batch.events if isinstance(one, JobProgressed)]
    return told if len(told) == len(batch.events) else ()


def _encode_several(values: Iterable[Event | Action]) -> bytes:
    return b"[" + b",".join(map(_encode_one, values)) + b"]"


def _encode_one(value: Event | Action) -> bytes:
    """Return what _Stored reads; a quarter of a fleet that is lost is 150,000 of these."""
    return b'{"kind":"%b","body":%b}' % (kind_of(value).encode(), _ENCODER.encode(value))


def decode_event(kind: str, body: bytes) -> JournaledEvent:
    """Return an event. Raises UnreadableError for an unknown kind or shape."""
    if kind == _PROGRESS:
        return _decode_progress(body)
    return _decode_batch(body) if kind == EventBatch.__name__ else _decode_single(kind, body)


def _decode_progress(body: bytes) -> EventBatch:
    try:
        rows = progress_columns.unpack(body)
    except (ValueError, zlib.error, msgspec.MsgspecError) as error:
        raise UnreadableError(f"{_PROGRESS}: {error}") from error
    if not rows:
        raise UnreadableError(f"{_PROGRESS}: no events")
    return EventBatch(rows)


def _decode_single(kind: str, body: bytes | msgspec.Raw) -> Event:
    decoder = _EVENTS.get(kind)
    if decoder is None:
        raise UnreadableError(f"unknown kind of event: {kind}")
    try:
        if kind == SettingsApplied.__name__:
            body = _current_settings_event(bytes(body))
        return decoder.decode(body)
    except _UNREADABLE as error:
        raise UnreadableError(f"{kind}: {error}") from error


def _decode_batch(body: bytes) -> EventBatch:
    try:
        stored: Sequence[_Stored] = _SEVERAL.decode(body)
    except _UNREADABLE as error:
        raise UnreadableError(f"{EventBatch.__name__}: {error}") from error
    if not stored:
        raise UnreadableError(f"{EventBatch.__name__}: no events")
    return EventBatch(tuple(_decode_single(one.kind, one.body) for one in stored))


def encode_actions(actions: Iterable[Action]) -> bytes:
    """Return the JSON of what one event led to."""
    return _encode_several(actions)


def decode_actions(body: bytes) -> list[Action]:
    """Return what one event led to. Raises UnreadableError."""
    try:
        stored: Sequence[_Stored] = _SEVERAL.decode(body)
        return [msgspec.json.decode(item.body, type=_ACTIONS[item.kind]) for item in stored]
    except (*_UNREADABLE, KeyError) as error:
        raise UnreadableError(f"recorded actions: {error}") from error


def encode_about(about: About | None) -> bytes:
    """Return what is stored of what programs are told of a line; empty for nothing."""
    return b"" if about is None else _ENCODER.encode(about)


def decode_about(body: bytes) -> About | None:
    """Return it; None for nothing, and for what a newer version wrote."""
    try:
        return _ABOUT.decode(body) if body else None
    except _UNREADABLE:
        return None


def decode_state(body: bytes) -> State:
    """Return a snapshot of the state. Raises UnreadableError."""
    try:
        return _STATE.decode(_current_state(body))
    except _UNREADABLE as error:
        raise UnreadableError(f"snapshot: {error}") from error


# --- what older versions wrote: settings in other words, nodes without values ---------------------

# The modes of single conditions, now three lists; and the names of the drivers, now the event's.
_MODES, _DRIVERS = "condition_modes", "isolation_drivers"
_RENAMED = {
    "own_restarts": "autonomous_restarts_max",
    "snapshot_interval_ns_max": "snapshot_interval_max_ns",
}
# How a version decided that did not have a setting yet, where its default decides otherwise.
_DECIDED_WITHOUT = {
    "autonomous_restarts_max": 0,
    "domain_isolation_budget_ratio": 1.0,
    "domain_isolations_per_hour_nodes": 1_000_000,
    "evidence_max_age_ns": 0,
    "hang_patience_ns": 0,
    "spare_check_interval_ns": 0,
    "stall_timeout_ns": 0,
}
_NOTHING = msgspec.Raw(b"{}")


def _current_state(body: bytes) -> bytes:
    """Return a state in this version's words and values, without decoding what has them."""
    parts = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    nodes = parts.get("nodes", _NOTHING)
    settings = msgspec.json.decode(parts.get("settings", _NOTHING), type=dict[str, Any])
    current: dict[str, msgspec.Raw] = {}
    if flat_nodes.are_flat(nodes):
        current["nodes"] = msgspec.Raw(flat_nodes.nest(nodes))
    if settings and settings != _current_settings(settings):
        current["settings"] = msgspec.Raw(_ENCODER.encode(_current_settings(settings)))
    return _ENCODER.encode(parts | current) if current else body


def _current_settings_event(body: bytes) -> bytes:
    event = msgspec.json.decode(body, type=dict[str, Any])
    settings = msgspec.convert(event.get("settings"), dict[str, Any])
    drivers = event.get(_DRIVERS, settings.get(_DRIVERS, ()))
    current = {"settings": _current_settings(settings), _DRIVERS: drivers}
    return _ENCODER.encode(event | current)


def _current_settings(stored: dict[str, Any]) -> dict[str, Any]:
    modes = msgspec.convert(stored.get(_MODES, ()), list[tuple[str, Mode]])
    lists = {mode.value: [name for name, chosen in modes if chosen is mode] for mode in Mode}
    same = {_RENAMED.get(name, name): value for name, value in stored.items() if name != _MODES}
    return {**_DECIDED_WITHOUT, **lists, **same}
