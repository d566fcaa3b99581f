"""Calls of the admin service, with a fleet and a job that they can be about."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from everstep_proto.generated import admin_pb2
from fuzz.choices import Choices, option
from fuzz.controller_world import ask, controlling, stream
from fuzz.format import Format, Handler
from fuzz.formats import agent_streams
from fuzz.shapes import Known
from fuzz.wire_messages import encoded, message_maker

_SERVICE = admin_pb2.DESCRIPTOR.services_by_name["Admin"]
_KNOWN: Known = {
    "node": option("node-1", "node-1", "node-2", ""),
    "job": option("demo", "demo-1", "other"),
    "name": option("node-1", "demo"),
    "subject": option("node-1", "demo", "", "fleet"),
    "follow": option(False),
    "limit": option(1, 100, 0),
    "reason": option("fuzz"),
    "operator": option("ann"),
    "window": option(1, 2),
    "spec": option("xid:79", "disk:full", "kill:0"),
}
_METHODS = [
    (method.full_name.rpartition("."), method.server_streaming, method.input_type)
    for method in _SERVICE.methods
]
_MAKERS = [
    (f"/{service}/{name}", streams, message_maker(request, _KNOWN))
    for (service, _, name), streams, request in _METHODS
]
_SEEDS = 24


@dataclass(frozen=True, slots=True)
class AdminCase:
    """One call."""

    method: str
    streams: bool
    request: bytes


def make(choices: Choices) -> AdminCase:
    """Return one call; what would follow events for ever asks for those so far."""
    method, streams, make_request = choices.of(_MAKERS)
    request = make_request(choices)
    if isinstance(request, admin_pb2.WatchEventsRequest):
        request.follow = False
        return AdminCase(method, streams, request.SerializeToString())
    return AdminCase(method, streams, encoded(request, choices))


@asynccontextmanager
async def _world(folder: Path) -> AsyncIterator[Handler]:
    async with controlling(folder) as channel:
        for seed in range(_SEEDS):  # a fleet that has said something
            said = agent_streams.make(Choices(bytes([seed % 3]) + bytes(range(seed, 256))))
            numbered = [agent_streams.numbered(message, seed) for message in said]
            await stream(channel, agent_streams.METHOD, numbered)

        async def handle(case: AdminCase) -> None:
            await ask(channel, case.method, case.request, streams=case.streams)

        yield handle


ADMIN_CALLS = Format(
    make, _world, ("everstep_controller.api.admin", "everstep_controller.core.planned"), 500
)
