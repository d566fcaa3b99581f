"""Agents of the command line's benchmark: streams with mTLS from one process, that stay open.

Arguments: port of the controller, number of agents, folder of the certificates. Prints ``ready``
when every agent is welcomed and has passed its check, and ends when standard input does.
"""

import asyncio
import sys
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everstep_proto.generated import fleet_pb2, fleet_pb2_grpc
from everstep_proto.tls import TlsSettings, aio_channel

# Streams opened at once: a ramp, not a storm.
_RAMP = 32
_GIB = 1 << 30
# One node in so many has this finding: some are degraded, fewer have a GPU that is lost.
_DEGRADED, _FATAL = 50, 200


def name_of(index: int) -> str:
    """Return the name of a node."""
    return f"gpu-{index:04}"


def certificate(folder: Path, index: int) -> TlsSettings:
    """Return the files of a node's certificate."""
    stem = folder / name_of(index)
    return TlsSettings(
        ca=folder / "ca.pem", certificate=stem.with_suffix(".pem"), key=stem.with_suffix(".key")
    )


def _stamp(boot_id: str) -> fleet_pb2.Stamp:
    boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return fleet_pb2.Stamp(boot_id=boot_id, boot_ns=boot_ns, wall_ns=time.time_ns())


@dataclass
class Agent:
    """One stream: Hello, a check that passes, perhaps a finding; after that it answers only."""

    index: int
    port: int
    folder: Path
    boot_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    outgoing: asyncio.Queue[fleet_pb2.AgentMessage] = field(default_factory=asyncio.Queue)
    sequence: int = 0

    async def run(self, gate: asyncio.Semaphore) -> None:
        """Stream until cancelled."""
        tls = certificate(self.folder, self.index)
        async with aio_channel(f"localhost:{self.port}", tls) as channel:
            async with gate:
                self.outgoing.put_nowait(self._hello())
                stream = fleet_pb2_grpc.FleetStub(channel).Connect(self._messages())
                answers = aiter(stream)
                await anext(answers)
            async for message in answers:
                self._answer(message)
        raise SystemExit(f"the controller ended the stream of {name_of(self.index)}")

    async def _messages(self) -> AsyncIterator[fleet_pb2.AgentMessage]:
        while True:
            yield await self.outgoing.get()

    def _answer(self, message: fleet_pb2.ControllerMessage) -> None:
        if message.HasField("time_request"):
            reply = fleet_pb2.TimeReply(
                sent_ns=message.time_request.sent_ns, stamp=_stamp(self.boot_id)
            )
            self.outgoing.put_nowait(fleet_pb2.AgentMessage(time_reply=reply))
        elif message.HasField("ping"):
            pong = fleet_pb2.Pong(ping_id=message.ping.ping_id)
            self.outgoing.put_nowait(fleet_pb2.AgentMessage(pong=pong))
        elif message.HasField("order") and message.order.HasField("run_check"):
            passed = fleet_pb2.CheckFinished(
                order_id=message.order.order_id, passed=True, message="fine"
            )
            self._record(fleet_pb2.Record(check_finished=passed))
            self._find()
        elif message.HasField("ack") and message.ack.sequence >= self.sequence:
            self.ready.set()

    def _find(self) -> None:
        if self.index % _DEGRADED and self.index % _FATAL:
            return
        fatal = not self.index % _FATAL
        finding = fleet_pb2.Finding(
            component="gpu/0000:3b:00.0" if fatal else "link/mlx5_3/1",
            condition="XidFatal" if fatal else "LinkDegraded",
            severity=fleet_pb2.SEVERITY_FATAL if fatal else fleet_pb2.SEVERITY_DEGRADED,
            suggested_action=fleet_pb2.SUGGESTED_ACTION_NONE,
            message="Xid 79: GPU has fallen off the bus." if fatal else "12 errors in a minute",
        )
        raised = fleet_pb2.FindingRaised(finding=finding, since=_stamp(self.boot_id))
        self._record(fleet_pb2.Record(finding_raised=raised))

    def _record(self, record: fleet_pb2.Record) -> None:
        self.sequence += 1
        record.sequence = self.sequence
        record.stamp.CopyFrom(_stamp(self.boot_id))
        self.outgoing.put_nowait(fleet_pb2.AgentMessage(record=record))

    def _hello(self) -> fleet_pb2.AgentMessage:
        accelerators = [
            fleet_pb2.Accelerator(uuid=f"GPU-{n}", name="NVIDIA H100 80GB HBM3", vendor="nvidia")
            for n in range(8)
        ]
        hello = fleet_pb2.Hello(
            node=name_of(self.index),
            agent_version="0.1.0",
            outbox=str(uuid.uuid4()),
            stamp=_stamp(self.boot_id),
            inventory=fleet_pb2.Inventory(
                kernel="6.1.0",
                cpu_model="simulated",
                cpu_count=192,
                memory_bytes=2048 * _GIB,
                accelerators=accelerators,
            ),
            domain=f"rack-{self.index // 32:02}",
            bulk_address="127.0.0.1:1",
            liveness_address="127.0.0.1:1",
            host="127.0.0.1",
        )
        return fleet_pb2.AgentMessage(hello=hello)


async def main(port: int, count: int, folder: Path) -> None:
    """Run the agents until standard input ends."""
    gate = asyncio.Semaphore(_RAMP)
    agents = [Agent(index, port, folder) for index in range(count)]
    tasks = [asyncio.create_task(agent.run(gate)) for agent in agents]
    welcomed = asyncio.gather(*(agent.ready.wait() for agent in agents))
    first: list[asyncio.Future[Any]] = [welcomed, *tasks]
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    if not welcomed.done():
        raise SystemExit(next(str(task.exception()) for task in tasks if task.done()))
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    raise SystemExit(0)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
