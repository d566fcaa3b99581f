"""Flat node records: how snapshots until 2026-11-30 held what is in the values of a record now."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

# By value, the fields that were of the same name in the record itself; and those of another name.
_SAME = {
    "spec": "boot_id outbox agent_version host domain machine bulk_address liveness_address "
    "inventory",
    "identity": "address contender successor welcomed_term renamed_to",
    "liveness": "connected silent_since_ns answered_ns blocked_since_ns silent_to silence "
    "confirmation questions absent lost_by",
    "streams": "flaps_since_ns",
    "health": "findings flapping checks check_failed checks_failed checks_unanswered",
    "isolation": "claims deferred held_back held_back_ns",
    "blame": "strikes hangs",
    "jobs": "refusals without_snapshot",
}
_RENAMED = {
    "stream_ends_ns": ("streams", "ends_ns"),
    "stream_end_reason": ("streams", "reason"),
    "blamed": ("blame", "reason"),
    "jobs": ("jobs", "ids"),
    "injections": ("injections", "by_id"),
    "injections_ordered": ("injections", "ordered"),
    "swap_plan": ("swap", "plan"),
    "swapped_for_ns": ("swap", "evidence_since_ns"),
    "swap_begun_ns": ("swap", "begun_ns"),
}
# The value, and its field, of each field that was flat.
PLACES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {name: (value, name) for value, names in _SAME.items() for name in names.split()} | _RENAMED
)

_Record = dict[str, msgspec.Raw]


class _Shape(msgspec.Struct):
    # What a flat record does not have.
    liveness: msgspec.Raw = msgspec.Raw(b"")


def are_flat(nodes: msgspec.Raw) -> bool:
    """Return whether records of nodes are flat. Raises msgspec.MsgspecError."""
    shapes = msgspec.json.decode(nodes, type=dict[str, _Shape])
    return any(not bytes(shape.liveness) for shape in shapes.values())


def nest(nodes: msgspec.Raw) -> bytes:
    """Return flat records of nodes with values. Raises msgspec.MsgspecError."""
    flat = msgspec.json.decode(nodes, type=dict[str, _Record])
    return msgspec.json.encode({name: _nested(record) for name, record in flat.items()})


def _nested(flat: _Record) -> dict[str, msgspec.Raw | _Record]:
    kept: _Record = {}
    values: dict[str, _Record] = {value: {} for value, _ in PLACES.values()}
    for name, held in flat.items():
        if name in PLACES:
            value, now = PLACES[name]
            values[value][now] = held
        else:
            kept[name] = held
    return {**kept, **values}
