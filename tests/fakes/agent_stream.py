"""An agent's stream as the tests drive it: real gRPC, no agent behind it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc

from everstep_proto.generated import fleet_pb2, fleet_pb2_grpc
from everstep_proto.tls import TlsSettings, aio_channel
from fakes.local_secret import shown
from fakes.waits import PATIENCE_S, crowding

Call = grpc.aio.StreamStreamCall[fleet_pb2.AgentMessage, fleet_pb2.ControllerMessage]
WAIT_S = PATIENCE_S


def stamp(boot_ns: int = 1) -> fleet_pb2.Stamp:
    """Return a stamp of the one boot that the tests know."""
    return fleet_pb2.Stamp(boot_id="boot", boot_ns=boot_ns, wall_ns=1)


@dataclass
class AgentStream:
    """One open stream. ``wait_for`` sets aside what comes before the kind that is waited for."""

    node: str
    call: Call
    seen: list[fleet_pb2.ControllerMessage] = field(default_factory=list)

    async def hello(
        self,
        term: int = 0,
        jobs: tuple[fleet_pb2.JobOnNode, ...] = (),
        boot_ns: int = 1,
        findings: tuple[fleet_pb2.Finding, ...] = (),
        **other: str,
    ) -> fleet_pb2.Welcome:
        """Say Hello and return the Welcome."""
        await self.send_hello(term, jobs, boot_ns=boot_ns, findings=findings, **other)
        return (await self.wait_for("welcome")).welcome

    async def send_hello(
        self,
        term: int = 0,
        jobs: tuple[fleet_pb2.JobOnNode, ...] = (),
        outbox: str = "",
        boot: str = "boot",
        boot_ns: int = 1,
        cluster_id: str = "",
        findings: tuple[fleet_pb2.Finding, ...] = (),
    ) -> None:
        """Say Hello, of another agent than the first of this name if an outbox is given."""
        hello = fleet_pb2.Hello(
            node=self.node,
            agent_version="0.1.0",
            outbox=outbox or f"outbox-{self.node}",
            highest_term=term,
            stamp=fleet_pb2.Stamp(boot_id=boot, boot_ns=boot_ns, wall_ns=1),
            cluster_id=cluster_id,
            bulk_address="127.0.0.1:1",
            liveness_address="127.0.0.1:2",
            host="127.0.0.1",
            jobs=jobs,
            open_findings=findings,
        )
        await self.send(hello=hello)

    async def healthy(self) -> None:
        """Say Hello and pass the check that follows."""
        await self.hello()
        order = (await self.wait_for("order")).order
        check = fleet_pb2.CheckFinished(order_id=order.order_id, passed=True, message="fine")
        await self.record(1, check_finished=check)
        await self.acknowledged(1)

    async def send(self, **body: object) -> None:
        """Send one message."""
        await self.call.write(fleet_pb2.AgentMessage(**body))  # type: ignore[arg-type]

    async def record(self, sequence: int, *, job: str = "train", **body: object) -> None:
        """Send one record; of a node's own affairs the job is not looked at."""
        when = stamp(sequence)
        record = fleet_pb2.Record(sequence=sequence, stamp=when, job=job, **body)  # type: ignore[arg-type]
        await self.send(record=record)

    async def finding(
        self,
        sequence: int,
        condition: str = "Odd",
        severity: fleet_pb2.Severity.ValueType = fleet_pb2.SEVERITY_INFO,
    ) -> None:
        """Send a finding as a record."""
        finding = fleet_pb2.Finding(
            component=f"disk/{sequence}",
            condition=condition,
            severity=severity,
            suggested_action=fleet_pb2.SUGGESTED_ACTION_NONE,
            message="odd",
        )
        raised = fleet_pb2.FindingRaised(finding=finding, since=stamp(sequence))
        await self.record(sequence, finding_raised=raised)

    async def wait_for(self, *kinds: str) -> fleet_pb2.ControllerMessage:
        """Return the next message of one of these kinds."""
        async with asyncio.timeout(WAIT_S * crowding()):
            while True:
                message = await self.call.read()
                if not isinstance(message, fleet_pb2.ControllerMessage):
                    raise EOFError(f"the stream ended: {await self.call.details()}")
                self.seen.append(message)
                if message.WhichOneof("body") in kinds:
                    return message

    async def _read(self) -> object:
        try:
            return await self.call.read()
        except grpc.aio.AioRpcError:
            return None

    async def acknowledged(self, sequence: int) -> None:
        """Wait until a record is acknowledged."""
        while (await self.wait_for("ack")).ack.sequence < sequence:
            pass

    async def order(self, kind: str) -> fleet_pb2.Order:
        """Return the next order of a kind."""
        while (order := (await self.wait_for("order")).order).WhichOneof("body") != kind:
            pass
        return order

    async def end(self) -> tuple[grpc.StatusCode, str]:
        """Wait until the controller ends the stream; return how and why."""
        async with asyncio.timeout(WAIT_S * crowding()):
            # The status comes after the last message.
            while isinstance(await self._read(), fleet_pb2.ControllerMessage):
                pass
            code, details = await self.call.code(), await self.call.details()
        assert isinstance(code, grpc.StatusCode)
        return code, details or ""


@asynccontextmanager
async def agent_stream(
    port: int, node: str, tls: TlsSettings | None = None
) -> AsyncIterator[AgentStream]:
    """Open a stream; Hello is the caller's."""
    async with aio_channel(f"localhost:{port}", tls or TlsSettings()) as channel:
        metadata = () if tls else shown()
        call = fleet_pb2_grpc.FleetStub(channel).Connect(metadata=metadata)
        try:
            yield AgentStream(node, call)
        finally:
            call.cancel()
