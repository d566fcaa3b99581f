"""Forwarding of people's calls from a door to the controller's own services, as bytes.

What the caller has shown of himself goes along, and the controller judges it: a door lets nobody do
anything. The services listen at a socket in a folder that only the controller's user may enter.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn, cast

import grpc
import msgspec

from everstep_controller.doors.messages import shown_of
from everstep_proto.generated import admin_pb2

# Of each forwarded call: what its caller has shown, encoded.
SHOWN_KEY = "everstep-shown-bin"
_ADMIN = admin_pb2.DESCRIPTOR.services_by_name["Admin"]
_KEPT = ("x509_pem_cert", "x509_pem_cert_chain")
Context = grpc.aio.ServicerContext[bytes, bytes]


def forwarded_methods(services: grpc.aio.Channel) -> tuple[grpc.GenericRpcHandler, ...]:
    """Return the handlers of the admin service that ask the controller's own."""
    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {}
    for method in _ADMIN.methods:
        path = f"/{_ADMIN.full_name}/{method.name}"
        if method.server_streaming:
            streamed = _streaming(services.unary_stream(path))
            methods[method.name] = grpc.unary_stream_rpc_method_handler(streamed)
        else:
            plain = _plain(services.unary_unary(path))
            methods[method.name] = grpc.unary_unary_rpc_method_handler(plain)
    return (grpc.method_handlers_generic_handler(_ADMIN.full_name, methods),)


def shown_metadata(context: Context) -> tuple[tuple[str, bytes], ...]:
    """Return what a call's caller has shown, as it is forwarded; nothing else of his metadata."""
    shown = shown_of(context.auth_context())
    kept = {key: shown[key] for key in _KEPT if key in shown}
    return ((SHOWN_KEY, msgspec.msgpack.encode(kept)),)


def _plain(ask: Any) -> Any:  # noqa: ANN401 - of bytes, for which gRPC's types have no name
    async def answer(request: bytes, context: Context) -> bytes:
        call = ask(request, metadata=shown_metadata(context), timeout=context.time_remaining())
        try:
            reply: bytes = await call
            context.set_trailing_metadata(tuple(await call.trailing_metadata() or ()))
        except grpc.aio.AioRpcError as error:
            await _fail(context, error)
        return reply

    return answer


def _streaming(ask: Any) -> Any:  # noqa: ANN401 - as above
    async def answer(request: bytes, context: Context) -> AsyncIterator[bytes]:
        call = ask(request, metadata=shown_metadata(context), timeout=context.time_remaining())
        try:
            async for reply in call:
                yield reply
            context.set_trailing_metadata(tuple(await call.trailing_metadata() or ()))
        except grpc.aio.AioRpcError as error:
            await _fail(context, error)
        finally:
            call.cancel()

    return answer


async def _fail(context: Context, error: grpc.aio.AioRpcError) -> NoReturn:
    told = tuple(error.trailing_metadata() or ())
    await context.abort(error.code(), error.details() or "", trailing_metadata=told)


class ForwardedCallers(grpc.aio.ServerInterceptor):
    """Has the services see the caller of a forwarded call, and not the door."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Any],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:  # noqa: ANN401 - a handler of any messages
        """Return the method's handler with a context that says who has called the door."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        made = handler.request_deserializer, handler.response_serializer
        if handler.response_streaming:
            stream = handler.unary_stream

            async def streamed(request: object, context: object) -> AsyncIterator[object]:
                async for message in stream(request, _Forwarded(context)):
                    yield message

            return grpc.unary_stream_rpc_method_handler(cast("Any", streamed), *made)
        plain = handler.unary_unary

        async def answer(request: object, context: object) -> object:
            return await plain(request, _Forwarded(context))

        return grpc.unary_unary_rpc_method_handler(cast("Any", answer), *made)


class _Forwarded:
    """Context of a call as its servicer sees it: all as it is, but who has called."""

    def __init__(self, context: Any) -> None:  # noqa: ANN401 - gRPC's own, of any kind
        self._context = context
        told = dict(context.invocation_metadata() or ()).get(SHOWN_KEY, b"")
        self._shown: dict[str, list[bytes]] = msgspec.msgpack.decode(
            told, type=dict[str, list[bytes]]
        )

    def auth_context(self) -> dict[str, list[bytes]]:
        """Return what the caller has shown to the door."""
        return self._shown

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever gRPC's has
        return getattr(self._context, name)
