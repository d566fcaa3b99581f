"""Agents' streams to the controller: Hello, records, reports and answers, to the core behind."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from google.protobuf.message import DecodeError

from everstep_proto.generated import fleet_pb2
from fuzz.choices import Choices, option
from fuzz.controller_world import controlling, stream
from fuzz.format import Format, Handler
from fuzz.shapes import Known
from fuzz.wire_messages import encoded, message_maker

METHOD = "/everstep.fleet.v1.Fleet/Connect"
_NODES = tuple(f"node-{number}" for number in range(1, 9))
_MESSAGES_MAX = 8
# Sequences up to here are counted on from the case before, as one outbox would.
_NEXT_SEQUENCES = 16
KNOWN: Known = {
    "node": option(*_NODES),
    "peer": option(*_NODES),
    "job": option("demo", "demo", "other", ""),
    "job_id": option("", "demo-1"),
    "lineage_id": option("", "demo-1"),
    "sequence": option(*range(1, _NEXT_SEQUENCES)),
    "boot_id": option("boot"),
    "boot_ns": option(1, 10**9, 2 * 10**9),
    "cluster_id": option(""),
    "highest_term": option(0, 1),
    "host": option("127.0.0.1"),
    "bulk_address": option("127.0.0.1:1"),
    "liveness_address": option("127.0.0.1:2"),
    "generation": option(1, 0, 2),
    "rank": option(0, 1, 2, 3),
    "step": option(*range(1, 12)),
    "nodes_min": option(1),
    "nodes_max": option(1, 2),
    "processes_per_node": option(1, 4),
    "replica_nodes": option(1),
    "token_sha256": option("00"),
    "every_steps": option(1, 10),
    "keep": option(2),
    "schema": option(1),
}
_HELLO = message_maker(fleet_pb2.Hello.DESCRIPTOR, KNOWN)
_MESSAGE = message_maker(fleet_pb2.AgentMessage.DESCRIPTOR, KNOWN)
_RECORD = message_maker(fleet_pb2.Record.DESCRIPTOR, KNOWN)


def make(choices: Choices) -> tuple[bytes, ...]:
    """Return what one stream says."""
    hello = _HELLO(choices)
    assert isinstance(hello, fleet_pb2.Hello)
    if not choices.rarely(200):  # another one is asked for first, which takes seconds
        hello.outbox = f"outbox-{hello.node}"[:200]
    said = [encoded(fleet_pb2.AgentMessage(hello=hello), choices)]
    if choices.rarely(12):
        said = [choices.bytes(64)]
    for _ in range(choices.below(_MESSAGES_MAX)):
        if choices.below(2):
            record = _RECORD(choices)
            assert isinstance(record, fleet_pb2.Record)
            said.append(encoded(fleet_pb2.AgentMessage(record=record), choices))
        else:
            said.append(encoded(_MESSAGE(choices), choices))
    return tuple(said)


def numbered(message: bytes, number: int) -> bytes:
    """Return a record with a sequence that counts on; anything else as it is."""
    try:
        told = fleet_pb2.AgentMessage.FromString(message)
    except DecodeError:
        return message
    if not (told.HasField("record") and 0 < told.record.sequence < _NEXT_SEQUENCES):
        return message
    told.record.sequence += number * _NEXT_SEQUENCES
    return told.SerializeToString()


@asynccontextmanager
async def _world(folder: Path) -> AsyncIterator[Handler]:
    number = 0
    async with controlling(folder) as channel:

        async def handle(case: tuple[bytes, ...]) -> None:
            nonlocal number
            number += 1
            await stream(channel, METHOD, [numbered(message, number) for message in case])

        yield handle


AGENT_STREAMS = Format(
    make,
    _world,
    (
        "everstep_proto.record_codec",
        "everstep_controller.api.fleet",
        "everstep_controller.records",
        "everstep_controller.core",
    ),
    400,
)
