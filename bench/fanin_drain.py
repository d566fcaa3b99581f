"""Drain, the limit of the controller: a grpc.aio server that takes its streams and does nothing."""

import asyncio
import sys
from collections.abc import AsyncIterator

import grpc

from everstep_proto.generated import fleet_pb2, fleet_pb2_grpc


class _Drain(fleet_pb2_grpc.FleetServicer):
    """Welcomes an agent and throws away whatever it says."""

    async def Connect(  # noqa: N802 - the name is in fleet.proto
        self,
        request_iterator: AsyncIterator[fleet_pb2.AgentMessage],
        context: grpc.aio.ServicerContext[fleet_pb2.AgentMessage, fleet_pb2.ControllerMessage],
    ) -> AsyncIterator[fleet_pb2.ControllerMessage]:
        """Parse every message, as the controller must, and drop it."""
        del context
        async for message in request_iterator:
            if message.HasField("hello"):
                yield fleet_pb2.ControllerMessage(welcome=fleet_pb2.Welcome(term=1))


async def serve(port: int) -> None:
    """Serve until killed."""
    server = grpc.aio.server(
        options=[
            # As the controller: no ping after received data, and a ramp of thousands of streams.
            ("grpc.http2.bdp_probe", 0),
            ("grpc.server.max_pending_requests", 100_000),
            ("grpc.server.max_pending_requests_hard_limit", 100_000),
        ]
    )
    fleet_pb2_grpc.add_FleetServicer_to_server(_Drain(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
