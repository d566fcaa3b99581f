"""Many agents of two controllers: a slow one keeps them, and each record is acknowledged once."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import grpc
import pytest

from everstep_agent.backoff import Backoff
from everstep_proto.controllers import ACTIVE_ADDRESS_KEY
from everstep_proto.generated import fleet_pb2, fleet_pb2_grpc
from everstep_proto.keepalive import permitted_pings
from fakes.one_loop import run
from fakes.waits import crowding, eventually
from integration.uplink_rig import Rig, running

_AGENTS = 30
Context = grpc.aio.ServicerContext[fleet_pb2.AgentMessage, fleet_pb2.ControllerMessage]

pytestmark = pytest.mark.timeout(120)


@dataclass
class Journal:
    """What both controllers have: the newest record of each outbox, and what was acknowledged."""

    newest: dict[str, int] = field(default_factory=dict)
    acknowledged: Counter[tuple[str, int]] = field(default_factory=Counter)


@dataclass
class Member(fleet_pb2_grpc.FleetServicer):
    """One of two controllers with one journal."""

    journal: Journal
    term: int
    active: bool
    other: str = ""
    # Set while its journal takes records.
    writes: asyncio.Event = field(default_factory=asyncio.Event)
    hellos: int = 0
    streams: int = 0
    ended: int = 0

    async def Connect(  # type: ignore[override]  # noqa: N802 - gRPC's name
        self, request_iterator: AsyncIterator[fleet_pb2.AgentMessage], context: Context
    ) -> None:
        hello = (await anext(request_iterator)).hello
        self.hellos += 1
        if not self.active:
            told = ((ACTIVE_ADDRESS_KEY, self.other),)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this is a standby", told)
        self.streams += 1
        known = self.journal.newest.get(hello.outbox, 0)
        welcome = fleet_pb2.Welcome(term=self.term, acknowledged=known)
        await context.write(fleet_pb2.ControllerMessage(welcome=welcome))
        try:
            async for message in request_iterator:
                if message.HasField("record"):
                    await self.writes.wait()
                    await self._journal(hello.outbox, message.record.sequence, context)
        finally:
            self.ended += 1

    async def _journal(self, outbox: str, sequence: int, context: Context) -> None:
        if sequence > self.journal.newest.get(outbox, 0):
            self.journal.newest[outbox] = sequence
            self.journal.acknowledged[outbox, sequence] += 1
        ack = fleet_pb2.Ack(sequence=self.journal.newest[outbox])
        await context.write(fleet_pb2.ControllerMessage(ack=ack))


async def _serve(member: Member) -> tuple[grpc.aio.Server, int]:
    server = grpc.aio.server(options=permitted_pings())
    fleet_pb2_grpc.add_FleetServicer_to_server(member, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


def _rig(number: int, *ports: int) -> Rig:
    backoff = Backoff(random.Random(number), first_s=0.1, cap_s=5.0)
    return Rig(*ports, backoff=backoff, outbox=f"outbox-{number}")


def test_a_fleet_stays_with_a_slow_controller_and_is_at_its_successor_when_it_is_gone() -> None:
    async def scenario() -> None:
        journal = Journal()
        one, two = Member(journal, term=1, active=True), Member(journal, term=2, active=False)
        one.writes.set()
        two.writes.set()
        (first, port), (second, other_port) = await _serve(one), await _serve(two)
        one.other, two.other = f"127.0.0.1:{other_port}", f"127.0.0.1:{port}"
        rigs = [_rig(number, port, other_port) for number in range(_AGENTS)]
        async with AsyncExitStack() as stack:
            for rig in rigs:
                await stack.enter_async_context(running(rig))
            await eventually(lambda: one.streams == _AGENTS)
            # A database that hangs for some seconds: everybody doubts, asks, and stays.
            one.writes.clear()
            _record(rigs, 5)
            await eventually(lambda: two.hellos >= _AGENTS)
            one.writes.set()
            await eventually(lambda: not any(rig.outbox.counts.waiting for rig in rigs))
            assert (one.streams, one.ended, two.streams) == (_AGENTS, 0, 0)
            # And it is gone, with records on their way; the other one takes over.
            _record(rigs, 5)
            await first.stop(0)
            _record(rigs, 5)
            two.active = True
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            await eventually(lambda: not any(rig.outbox.counts.waiting for rig in rigs))
            assert loop.time() - began_s < 20.0 * crowding()
            # A question that was open as the first stream ended may have been asked twice.
            await eventually(lambda: two.streams - two.ended == _AGENTS)
        await second.stop(0)
        every = {(f"outbox-{one}", sequence) for one in range(_AGENTS) for sequence in range(1, 16)}
        assert journal.acknowledged == Counter(every)

    run(scenario())


def _record(rigs: list[Rig], count: int) -> None:
    for rig in rigs:
        for number in range(count):
            rig.record(str(number))
