"""The longest message of each kind, by the bounds of its fields, and of the largest job."""

import typing
from dataclasses import is_dataclass

import pytest

from everstep_common import quantities as q
from everstep_common.bounds import Bytes, Digest, Integer, Items, Name, Opaque, Text
from everstep_common.hints import hints_of
from everstep_common.orders import (
    Publish,
    ShardSource,
    SpareMemory,
    StartGeneration,
    StoredFile,
    VaultDirective,
)
from everstep_common.reports import (
    GoingAway,
    KernelMessages,
    PeerEvidence,
    PeerReport,
    Pong,
    Report,
    SampleBatch,
    StoredStep,
    TimeReply,
    VaultCopy,
    VaultReport,
)
from everstep_proto.generated import fleet_pb2
from everstep_proto.message_sizes import TO_AGENT_BYTES_MAX, TO_CONTROLLER_BYTES_MAX
from everstep_proto.orders import order_to_wire
from everstep_proto.record_codec import shape_of, to_wire

# Of a field's number and length; a number of 64 bits has 10 bytes, a character at most 4.
_TAG_BYTES, _NUMBER_BYTES, _CHARACTER_BYTES = 7, 10, 4
# The largest job that is known (decision 041), with a replica of each copy.
_RANKS, _RANKS_OF_NODE, _COPIES = 16_384, 8, 2


def _longest(kind: type) -> int:
    """Return how many bytes the message of a record has at most."""
    return sum(_longest_field(hint) for hint in hints_of(kind).values())


def _longest_field(hint: object) -> int:
    shape = shape_of(hint)
    count = shape.list_bound.most if isinstance(shape.list_bound, Items) else 1
    return count * (_TAG_BYTES + _longest_value(shape.kind, shape.bound))


def _longest_value(kind: object, bound: object) -> int:
    match bound:
        case Text(most=most) | Name(most=most) | Opaque(most=most):
            return _CHARACTER_BYTES * most
        case Bytes(most=most) | Digest(most_bytes=most):
            return most
        case Integer():
            return _NUMBER_BYTES
    if is_dataclass(kind):
        return _longest(typing.cast("type", kind))
    return _NUMBER_BYTES


@pytest.mark.parametrize(
    "kind",
    [
        *typing.get_args(Report),
        *(SampleBatch, TimeReply, PeerReport, PeerEvidence, Pong, GoingAway, KernelMessages),
    ],
    ids=lambda kind: kind.__name__,
)
def test_the_longest_message_of_an_agent_is_one_that_the_controller_takes(kind: type) -> None:
    # A Record has its number, its stamp and the name of its job beside it.
    assert _longest(kind) + 4096 <= TO_CONTROLLER_BYTES_MAX


def _source(rank: int, host: str) -> ShardSource:
    return ShardSource(
        node=host,
        bulk_address=f"{host}:65535",
        generation=10**6,
        rank=rank,
        step=10**9,
        root_hash="5a" * 16,
        size_bytes=2**40,
        layout="a5" * 16,
    )


def _sources(host: str) -> tuple[ShardSource, ...]:
    return tuple(_source(rank, host) for rank in range(_RANKS) for _ in range(_COPIES))


def _start(host: str) -> fleet_pb2.ControllerMessage:
    order = StartGeneration(
        id="job-1/g1/start/" + host,
        node=host,
        reason="r" * 200,
        job="j" * 64,
        generation=10**6,
        node_rank=2047,
        node_count=_RANKS // _RANKS_OF_NODE,
        first_rank=_RANKS - _RANKS_OF_NODE,
        processes=_RANKS_OF_NODE,
        world_size=_RANKS,
        master_address=host,
        master_port=29_500,
        restore_step=10**9,
        # Every rank a part of its own, restored on another number of ranks: each needs all.
        sources=_sources(host),
        skipped=(),
    )
    return fleet_pb2.ControllerMessage(order=order_to_wire(order, 1))


def _directive(host: str) -> fleet_pb2.ControllerMessage:
    files = tuple(StoredFile(rank, "5a" * 16, 2**40, "a5" * 16) for rank in range(_RANKS))
    target = StoredStep(10**6, 10**9, _RANKS, "", 2**50)
    kept = tuple(StoredStep(10**6, step, _RANKS, "5a" * 16, 2**50) for step in range(10_000))
    directive = VaultDirective(
        job="j" * 64,
        generation=10**6,
        term=9,
        publish=Publish(10**6, target, files, kept),
        sources=_sources(host),
    )
    return fleet_pb2.ControllerMessage(vault=to_wire(directive, fleet_pb2.VaultDirective))


def _spare(host: str) -> fleet_pb2.ControllerMessage:
    wanted = SpareMemory(job="j" * 64, term=9, copy_bytes=2**40, processes=8, ahead=_sources(host))
    return fleet_pb2.ControllerMessage(spare_memory=to_wire(wanted, fleet_pb2.SpareMemory))


# Longer than the names of nodes in clouds; gRPC takes 4 MiB where nothing else is said.
_HOST = "gpu-node-0000.some-long-cluster-name.region-1.internal.example"


@pytest.mark.parametrize("make", [_start, _directive, _spare])
def test_what_the_largest_job_is_told_fits_with_room(
    make: typing.Callable[[str], fleet_pb2.ControllerMessage],
) -> None:
    size_bytes = make(_HOST).ByteSize()
    assert 4 * 1024 * 1024 < size_bytes < TO_AGENT_BYTES_MAX // 4


def test_what_the_largest_node_reports_fits_with_room() -> None:
    copy = VaultCopy(
        generation=10**6,
        rank=_RANKS - 1,
        step=10**9,
        root_hash=b"5" * 16,
        size_bytes=2**40,
        layout=b"a" * 16,
        needed_layout=b"b" * 16,
    )
    # 64 ranks with 8 copies each, own ones and replicas, and a thousand steps in storage.
    stored = tuple(StoredStep(1, step, _RANKS, "5a" * 16, 2**50) for step in range(1000))
    report = VaultReport(job="j" * 64, copies=(copy,) * 1024, stored=stored)
    assert to_wire(report, fleet_pb2.VaultReport).ByteSize() < TO_CONTROLLER_BYTES_MAX // 16
    assert _RANKS * 10 < q.RANKS_MAX
