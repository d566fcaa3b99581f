"""Certificate guard: a call on an open channel counts only while its certificate still does.

TLS looks at a certificate once, when a channel opens. One that has expired since, or whose
authority was replaced, is refused at the next call, and a streamed answer ends at its next message.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import grpc
from cryptography import x509
from cryptography.exceptions import InvalidSignature

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]
    Handler = grpc.RpcMethodHandler[Any, Any]

# Longer chains are nobody's.
_CHAIN_MAX = 8


def trouble(
    certificate: x509.Certificate,
    chain: Iterable[x509.Certificate],
    authorities: Iterable[x509.Certificate],
    now: datetime,
) -> str:
    """Return why a certificate counts no more, and what to do; empty while it counts."""
    if now > certificate.not_valid_after_utc:
        ended = certificate.not_valid_after_utc.isoformat(timespec="seconds")
        return f"the certificate ended at {ended}: name a newer one (--tls-certificate, --tls-key)"
    known, links = list(authorities), list(chain)
    below: x509.Certificate | None = certificate
    for _ in range(_CHAIN_MAX):
        if below is None:
            break
        child = below
        if any(child == one or _has_issued(one, child) for one in known):
            return ""
        below = next((one for one in links if one != child and _has_issued(one, child)), None)
    return "the authority of the certificate was replaced: name one of the new authority"


def _has_issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


class CertificateGuard(grpc.aio.ServerInterceptor):
    """Looks at the certificate of each call of the admin service, and of each message after it."""

    def __init__(
        self, authority: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """Trust the certificates in a file, as it is at each call."""
        self._path, self._now = authority, now
        self._read: tuple[bytes, list[x509.Certificate]] = (b"", [])

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        """Return the method's handler behind the look; that of agents' streams as it is."""
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
        told = context.auth_context()
        leaf = _certificates(told, "x509_pem_cert")
        if not leaf:
            return  # who comes without one is refused by its lack of an identity
        chain = _certificates(told, "x509_pem_cert_chain")
        if why := trouble(leaf[0], chain, self._authorities(), self._now()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, why)

    def _authorities(self) -> list[x509.Certificate]:
        """Return those in the file; those that were read before, where it cannot be read now."""
        try:
            content = self._path.read_bytes()
            if content != self._read[0]:
                self._read = (content, x509.load_pem_x509_certificates(content))
        except (OSError, ValueError):
            return self._read[1]
        return self._read[1]


def _certificates(told: Mapping[str, Iterable[bytes]], name: str) -> list[x509.Certificate]:
    found = b"".join(told.get(name, ()))
    return x509.load_pem_x509_certificates(found) if found else []
