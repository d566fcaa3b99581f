"""What a hostile user of the machine tries at a controller: run by the tests as nobody.

Arguments: ``ask ADDRESS [SECRET]`` makes every call of both services, and prints a line of JSON
with how each ended; ``serve PORT`` is a false controller, which prints whatever it is told.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import TypeAlias

import grpc

from everstep_proto.generated import admin_pb2, fleet_pb2, fleet_pb2_grpc

_Method: TypeAlias = "grpc.aio.UnaryStreamMultiCallable[bytes, bytes]"


async def ask(address: str, *secret: str) -> None:
    """Call as an agent, and as an operator."""
    shown = tuple(("everstep-secret", one) for one in secret)
    ends: dict[str, str] = {}
    async with grpc.aio.insecure_channel(address) as channel:
        call = fleet_pb2_grpc.FleetStub(channel).Connect(metadata=shown)
        try:
            hello = fleet_pb2.Hello(
                node="node-1", outbox="stranger", liveness_address="127.0.0.1:1"
            )
            await call.write(fleet_pb2.AgentMessage(hello=hello))
            ends["Connect"] = f"TOLD {await call.read()}"
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            ends["Connect"] = f"{(await call.code()).name}: {await call.details()}"
        service = admin_pb2.DESCRIPTOR.services_by_name["Admin"]
        for method in service.methods:
            path = f"/{service.full_name}/{method.name}"
            try:
                method_of: _Method = channel.unary_stream(path)
                told = method_of(b"", metadata=shown, timeout=10)
                ends[method.name] = f"TOLD {await told.read()}"
                told.cancel()
            except grpc.aio.AioRpcError as error:
                ends[method.name] = error.code().name
    print(json.dumps(ends), flush=True)


class _Everything(grpc.GenericRpcHandler):
    def service(self, handler_call_details: grpc.HandlerCallDetails):  # type: ignore[no-untyped-def]  # noqa: ANN202
        path = handler_call_details.method
        metadata = [tuple(pair) for pair in handler_call_details.invocation_metadata]

        async def serve(
            requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
        ) -> None:
            body = await anext(requests)
            print(json.dumps([path, metadata, body.decode(errors="replace")]), flush=True)
            welcome = fleet_pb2.Welcome(term=99)
            await context.write(fleet_pb2.ControllerMessage(welcome=welcome).SerializeToString())

        return grpc.stream_stream_rpc_method_handler(serve)


async def serve(port: str) -> None:
    """Answer everything at a port of loopback, and print what came."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Everything(),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print(json.dumps("serving"), flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(ask(*sys.argv[2:]) if sys.argv[1] == "ask" else serve(sys.argv[2]))
