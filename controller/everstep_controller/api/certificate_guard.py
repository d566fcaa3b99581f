"""Certificate guard: a call on an open channel counts only while its certificate still does.

TLS looks at a certificate once, when a channel opens. One that has expired since, or whose
authority was replaced, is refused at the next call, and a streamed answer ends at its next message.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import grpc

from everstep_proto.shown_certificates import Revoked, ShownCertificates

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]
    Handler = grpc.RpcMethodHandler[Any, Any]


class CertificateGuard(grpc.aio.ServerInterceptor):
    """Looks at the certificate of each call of the admin service, and of each message after it."""

    def __init__(
        self,
        authority: Path,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        revoked: Revoked = lambda _, __, ___: "",
    ) -> None:
        """Trust the certificates in a file, as it is at each call, but those that are revoked."""
        self._certificates = ShownCertificates(authority, now, revoked)

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        """Return the method's handler behind the look; that of agents' streams as it is.

        A stream that just ended would be a silent node: fleet/stream_certificates.py ends those.
        """
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_streaming:
            return handler
        return self._streaming(handler) if handler.response_streaming else self._plain(handler)

    def _plain(self, handler: "Handler") -> "Handler":
        answer_request: Callable[[object, Context], Awaitable[object]] = cast(
            "Any", handler.unary_unary
        )

        async def answer(request: object, context: "Context") -> object:
            await self._check(context)
            return await answer_request(request, context)

        return grpc.unary_unary_rpc_method_handler(
            cast("Any", answer), handler.request_deserializer, handler.response_serializer
        )

    def _streaming(self, handler: "Handler") -> "Handler":
        answer_request: Callable[[object, Context], AsyncIterator[object]] = cast(
            "Any", handler.unary_stream
        )

        async def answer(request: object, context: "Context") -> AsyncIterator[object]:
            await self._check(context)
            async for message in answer_request(request, context):
                await self._check(context)
                yield message

        return grpc.unary_stream_rpc_method_handler(
            cast("Any", answer), handler.request_deserializer, handler.response_serializer
        )

    async def _check(self, context: "Context") -> None:
        if why := self._certificates.trouble(context.auth_context()):
            newer = "name a newer one (--tls-certificate, --tls-key)"
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, f"{why}: {newer}")
