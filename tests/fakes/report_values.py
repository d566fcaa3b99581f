"""Values of reports within their bounds, at them and beyond them, derived from the records."""

import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Any

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from everstep_common import quantities as q
from everstep_common.bounds import Bound, Bytes, Digest, Integer, Items, Name, Opaque, Text
from everstep_common.hints import hints_of
from everstep_common.launcher_messages import Join
from everstep_common.orders import (
    ConfirmPeer,
    Halted,
    InspectRanks,
    Order,
    PeerList,
    Ping,
    ReadOutput,
    RevokedCertificates,
    SpareMemory,
    SparePreload,
    TellLauncher,
    TimeRequest,
    VaultDirective,
)
from everstep_common.preload import Preload
from everstep_common.reports import (
    DataRange,
    GoingAway,
    Hello,
    InjectionChanged,
    InjectionState,
    JobRequest,
    KernelMessages,
    LauncherJoined,
    OutputRead,
    PeerEvidence,
    PeerReport,
    Pong,
    RanksInspected,
    Report,
    RestartedHere,
    SampleBatch,
    StepsCompleted,
    StoredStep,
    TimeReply,
    VaultReport,
)
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import shape_of

_ITEMS_MAX = 4
# Some of them match each pattern.
# The last but one is the id of a storage folder.
_NAMES = (
    *("demo", "a", "9" * 64, "llama-3.1_70B", "llama-1042", "/data/run", "node/check/1"),
    *("5a" * 16, "\n ü"),
)
Sample = tuple[object, bool]


@cache
def records(kind: type) -> SearchStrategy[object]:
    """Return records of a kind that are within their bounds, each field and all together."""
    each = st.fixed_dictionaries({name: _values(hint) for name, hint in hints_of(kind).items()})
    fit = next((fit for known, fit in _FITS.items() if issubclass(kind, known)), None)
    assert fit or not hasattr(kind, "problems"), f"_FITS has no rule for {kind.__name__}"
    return each.map(lambda values: kind(**(fit(values) if fit else values)))


# Values of a record's fields, each within its bounds, so that they also go together. Nothing is
# drawn in vain: hypothesis gives up a strategy of which most values are thrown away.
_Fields = dict[str, Any]


def _fit_range(values: _Fields) -> _Fields:
    first, last = sorted((values["first"], values["last"]))
    return {"first": first, "last": last}


def _fit_request(values: _Fields) -> _Fields:
    together = values["replica_nodes"]
    copies = sorted(max(1, values[name] // together) for name in ("nodes_min", "nodes_max"))
    each = min(values["processes_per_node"], q.RANKS_MAX // (copies[1] * together))
    least, most = sorted((values["snapshot_every_min"], values["snapshot_every_max"]))
    return values | {
        "nodes_min": copies[0] * together,
        "nodes_max": copies[1] * together,
        "processes_per_node": each,
        "snapshot_every_min": least,
        "snapshot_every_max": most,
    }


def _fit_join(values: _Fields) -> _Fields:
    texts = values["environment"].values()
    named = {f"AWS_{number}": text.replace("\0", "") for number, text in enumerate(texts)}
    return _fit_request(values) | {"environment": named}


def _fit_restart(values: _Fields) -> _Fields:
    after = min(values["after_generation"], q.NUMBER_MAX - 1)
    return values | {
        "after_generation": after,
        "generation": max(values["generation"], after + 1),
    }


def _fit_steps(values: _Fields) -> _Fields:
    count = min(len(values["end_boot_ns"]), len(values["stall_ns"]))
    return values | {name: values[name][:count] for name in ("end_boot_ns", "stall_ns")}


def _fit_report(values: _Fields) -> _Fields:
    """Return them with the hash of each manifest."""
    return values | {"stored": tuple(map(_with_hash, values["stored"]))}


def _with_hash(step: StoredStep) -> StoredStep:
    return step if step.manifest_hash else replace(step, manifest_hash="5a")


def _fit_joined(values: _Fields) -> _Fields:
    latest: StoredStep | None = values["latest"]
    return _fit_request(values) | {"latest": latest and _with_hash(latest)}


def _fit_injection(values: _Fields) -> _Fields:
    ordered = values["state"] is InjectionState.ORDERED
    return values | {"state": InjectionState.ACTIVE} if ordered else values


_FITS: Mapping[type, Callable[[_Fields], _Fields]] = MappingProxyType(
    {
        DataRange: _fit_range,
        Join: _fit_join,
        LauncherJoined: _fit_joined,
        JobRequest: _fit_request,
        VaultReport: _fit_report,
        RestartedHere: _fit_restart,
        StepsCompleted: _fit_steps,
        InjectionChanged: _fit_injection,
    }
)


def _values(hint: object) -> SearchStrategy[object]:
    shape = shape_of(hint)
    one = _one(shape.kind, shape.bound)
    if shape.items:
        most = shape.list_bound.most if isinstance(shape.list_bound, Items) else _ITEMS_MAX
        one = st.lists(one, max_size=min(_ITEMS_MAX, most)).map(tuple)
    return st.none() | one if shape.optional else one


def _one(kind: object, bound: Bound | None) -> SearchStrategy[object]:
    match bound:
        case Integer(low=low, high=high):
            return st.integers(low, high) | st.sampled_from([low, high])
        case Text(most=most):
            return st.text(max_size=min(most, 12)) | st.just("x" * most)
        case Name() | Opaque():
            return st.sampled_from(_names(bound))
        case Bytes(most=most, least=least):
            return st.binary(min_size=least, max_size=min(most, 40))
        case Digest(most_bytes=most):
            return st.sampled_from(["00", "5a" * most])
    return _unbounded(kind)


def _names(bound: Name | Opaque) -> list[str]:
    """Return texts that a bound allows, the shortest first."""
    if isinstance(bound, Name):
        return [name for name in _NAMES if re.fullmatch(bound.pattern, name)]
    return ["x" * bound.least, *(name for name in _NAMES if len(name) <= bound.most)]


def _unbounded(kind: object) -> SearchStrategy[object]:
    if is_dataclass(kind):
        return records(typing.cast("type", kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    if typing.get_origin(kind) is dict:
        return st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3)
    return _PLAIN[typing.cast("type", kind)]


_PLAIN: Mapping[type, SearchStrategy[object]] = MappingProxyType(
    {
        bool: st.booleans(),
        int: st.integers(0, 2**40),
        float: st.floats(allow_nan=False),
        str: st.text(max_size=9),
        bytes: st.binary(max_size=40),
    }
)


def plain(kind: type) -> typing.Any:  # noqa: ANN401 - any record
    """Return a record of a kind with the least of everything."""
    return kind(**{name: _plain(hint) for name, hint in hints_of(kind).items()})


def _plain(hint: object) -> object:
    shape = shape_of(hint)
    if shape.optional or shape.items:
        return None if shape.optional else ()
    return plain_one(shape.kind, shape.bound)


def plain_one(kind: object, bound: Bound | None) -> object:
    """Return the least value of a field that must have one."""
    match bound:
        case Integer(low=low, high=high):
            return min(max(low, 1), high)
        case Text():
            return ""
        case Name() | Opaque():
            return _names(bound)[0]
        case Digest():
            return "00"
        case Bytes(least=least):
            return b"x" * least
    if is_dataclass(kind):
        return plain(typing.cast("type", kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return list(kind)[-1]
    return typing.cast("type", typing.get_origin(kind) or kind)()


def samples_at_bounds(bound: Bound) -> list[Sample]:
    """Return values at, below and above the bounds of a field, and whether each is kept."""
    match bound:
        case Integer(low=low, high=high):
            return [(low, True), (high, True), (low - 1, False), (high + 1, False)]
        case Text(most=most):
            return [("", True), ("ü" * most, True)]
        case Name(pattern=pattern):
            # Some names may be left out.
            return [("\0", False), ("", bool(re.fullmatch(pattern, ""))), ("x" * 5000, False)]
        case Opaque(least=least, most=most):
            beyond = [("x" * (least - 1), False)] if least else []
            within = [("ü" * least, True), ("x" * most, True)]
            return [*beyond, *within, ("x" * (most + 1), False), ("a\0b", False)]
        case Bytes(most=most, least=least):
            return [(b"x" * most, True), (b"x" * (most + 1), False), (b"", not least)]
        case Digest(most_bytes=most, least_bytes=least):
            return [("00" * most, True), ("00" * (most + 1), False), ("", not least)]
    return [((), True)]


def messages_of(kinds: Iterable[type]) -> dict[type, type[Message]]:
    """Return each of these records, and those in their fields, with its message."""
    found: dict[type, type[Message]] = {}
    waiting: list[tuple[Any, type[Message]]] = [
        (kind, getattr(fleet_pb2, kind.__name__)) for kind in kinds
    ]
    while waiting:
        kind, message = waiting.pop()
        if kind not in found:
            found[kind] = message
            waiting += _nested(kind, message)
    return found


def _nested(kind: type, message: type[Message]) -> Iterator[tuple[Any, type[Message]]]:
    fields: Mapping[str, Any] = message.DESCRIPTOR.fields_by_name
    for name, hint in hints_of(kind).items():
        inner = shape_of(hint).kind
        if is_dataclass(inner) and name in fields:
            yield inner, GetMessageClass(fields[name].message_type)


# What travels on the agent's stream beside records and orders.
BESIDE_THEM: tuple[type, ...] = (
    Hello,
    Preload,
    VaultReport,
    SampleBatch,
    TimeReply,
    PeerReport,
    PeerEvidence,
    Pong,
    GoingAway,
    OutputRead,
    RanksInspected,
    KernelMessages,
    PeerList,
    ConfirmPeer,
    RevokedCertificates,
    Halted,
    Ping,
    ReadOutput,
    InspectRanks,
    TellLauncher,
    TimeRequest,
    VaultDirective,
    SpareMemory,
    SparePreload,
)
MESSAGES: Mapping[type, type[Message]] = MappingProxyType(
    messages_of((*typing.get_args(Report), *typing.get_args(Order), *BESIDE_THEM))
)
