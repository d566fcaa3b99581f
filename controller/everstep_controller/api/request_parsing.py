"""Request parsing: bytes that are no request of their method are refused in a sentence.

gRPC itself would call that an error of this server, and write a traceback for each to the log.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import grpc
from google.protobuf.message import DecodeError

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[bytes, Any]
    Handler = grpc.RpcMethodHandler[Any, Any]


class RequestParsing(grpc.aio.ServerInterceptor):
    """Parser of the requests of calls with one; who takes bytes as they are parses them himself."""

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        """Return the method's handler, which is called with a request or not at all."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_deserializer is None:
            return handler
        return _streaming(handler) if handler.response_streaming else _plain(handler)


def _plain(handler: "Handler") -> "Handler":
    answer_request: Callable[[object, Context], Awaitable[object]] = cast(
        "Any", handler.unary_unary
    )

    async def answer(content: bytes, context: "Context") -> object:
        return await answer_request(await _parsed(handler, content, context), context)

    return grpc.unary_unary_rpc_method_handler(
        cast("Any", answer), response_serializer=handler.response_serializer
    )


def _streaming(handler: "Handler") -> "Handler":
    answer_request: Callable[[object, Context], AsyncIterator[object]] = cast(
        "Any", handler.unary_stream
    )

    async def answer(content: bytes, context: "Context") -> AsyncIterator[object]:
        request = await _parsed(handler, content, context)
        async for message in answer_request(request, context):
            yield message

    return grpc.unary_stream_rpc_method_handler(
        cast("Any", answer), response_serializer=handler.response_serializer
    )


async def _parsed(handler: "Handler", content: bytes, context: "Context") -> object:
    """Return a request, or end the call."""
    assert handler.request_deserializer is not None
    try:
        return handler.request_deserializer(content)
    except DecodeError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"not a request: {error}")
