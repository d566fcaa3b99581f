"""Simulated agents: real streams from one process, each with a batch of samples every second.

Speaks to its parent: prints ``ready`` when every stream is welcomed, then a count of the batches
sent so far for every line it reads.
"""

import argparse
import asyncio
import sys
import time
import uuid
from array import array
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from everstep_common.samples import COLUMNS, SCHEMA
from everstep_proto.generated import fleet_pb2, fleet_pb2_grpc
from everstep_proto.local.client import Metadata
from everstep_proto.local.secret import read_secret

_ROW = array("f", range(len(COLUMNS))).tobytes()
# Streams opened at once: a ramp, not a storm.
_RAMP = 50


@dataclass
class Counters:
    """Progress of the fleet."""

    welcomed: int = 0
    sent: int = 0
    everybody: asyncio.Event = field(default_factory=asyncio.Event)


def _stamp(boot_id: str) -> fleet_pb2.Stamp:
    return fleet_pb2.Stamp(
        boot_id=boot_id,
        boot_ns=time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        wall_ns=time.time_ns(),
    )


class Agent:
    """One stream: says Hello, answers the clock, and sends a batch a second at its own phase."""

    def __init__(self, index: int, agents: int, counters: Counters) -> None:
        self._name = f"node-{index:05}"
        self._phase_s = index / agents
        self._boot_id = str(uuid.uuid4())
        self._counters = counters
        self._outgoing: asyncio.Queue[fleet_pb2.AgentMessage] = asyncio.Queue()

    async def run(
        self, address: str, shown: Metadata, gate: asyncio.Semaphore, agents: int
    ) -> None:
        """Stream until cancelled."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            self._outgoing.put_nowait(self._hello())
            async with gate:
                stream = fleet_pb2_grpc.FleetStub(channel).Connect(self._messages(), metadata=shown)
                answers = aiter(stream)
                await anext(answers)
            self._counters.welcomed += 1
            if self._counters.welcomed == agents:
                self._counters.everybody.set()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._sample())
                tasks.create_task(self._answer(answers))

    async def _messages(self) -> AsyncIterator[fleet_pb2.AgentMessage]:
        while True:
            yield await self._outgoing.get()

    async def _answer(self, answers: AsyncIterator[fleet_pb2.ControllerMessage]) -> None:
        async for message in answers:
            if message.HasField("time_request"):
                reply = fleet_pb2.TimeReply(
                    sent_ns=message.time_request.sent_ns, stamp=_stamp(self._boot_id)
                )
                self._outgoing.put_nowait(fleet_pb2.AgentMessage(time_reply=reply))
        raise SystemExit(f"the server ended the stream of {self._name}")

    async def _sample(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._phase_s
        while True:
            await asyncio.sleep(due - loop.time())
            batch = fleet_pb2.SampleBatch(
                schema=SCHEMA, first=_stamp(self._boot_id), interval_ns=10**9, rows=_ROW
            )
            self._outgoing.put_nowait(fleet_pb2.AgentMessage(samples=batch))
            self._counters.sent += 1
            due += 1.0

    def _hello(self) -> fleet_pb2.AgentMessage:
        inventory = fleet_pb2.Inventory(kernel="6.1.0", cpu_model="simulated", cpu_count=64)
        hello = fleet_pb2.Hello(
            node=self._name,
            agent_version="0.1.0",
            outbox=str(uuid.uuid4()),
            stamp=_stamp(self._boot_id),
            inventory=inventory,
            bulk_address="127.0.0.1:1",
            liveness_address="127.0.0.1:1",
            host="127.0.0.1",
        )
        return fleet_pb2.AgentMessage(hello=hello)


async def _tell(counters: Counters) -> None:
    await counters.everybody.wait()
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(counters.sent, flush=True)
    raise SystemExit(0)


async def main(address: str, shown: Metadata, agents: int) -> None:
    """Run the fleet until standard input ends."""
    counters = Counters()
    gate = asyncio.Semaphore(_RAMP)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_tell(counters))
        for index in range(agents):
            tasks.create_task(Agent(index, agents, counters).run(address, shown, gate, agents))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("agents", type=int)
    parser.add_argument("secret_file", type=Path)
    given = parser.parse_args()
    shown = read_secret(given.secret_file).metadata()
    asyncio.run(main(given.address, shown, given.agents))
