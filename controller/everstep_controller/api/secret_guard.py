"""Secret guard: a controller on loopback without certificates serves only calls with its secret."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import grpc

from everstep_proto.local.client import PROBE
from everstep_proto.local.ownership import UntrustedError
from everstep_proto.local.secret import METADATA_KEY, SecretFile, make_secret

if TYPE_CHECKING:
    from grpc import RpcMethodHandler as Handler

logger = logging.getLogger(__name__)

_TELL_EVERY_S = 60.0

Q = TypeVar("Q")
A = TypeVar("A")
Context = grpc.aio.ServicerContext[object, object]


class SecretGuard(grpc.aio.ServerInterceptor):
    """Looks at the metadata of each call and stream before anything else does."""

    def __init__(self, path: Path) -> None:
        """Make the secret where there is none, and read it. Raises UntrustedError."""
        try:
            make_secret(path)
        except OSError as error:
            raise UntrustedError(
                f"the secret {path} cannot be made: {error.strerror}; name another secret_file"
            ) from error
        self._secret = SecretFile(path)
        # Calls without the secret since this start; since the newest line of the log.
        self.refused = 0
        self._untold, self._told_s = 0, float("-inf")

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[Handler[Q, A] | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler[Q, A] | None":
        """Let a call pass that knows the secret."""
        if handler_call_details.method == PROBE:
            return await continuation(handler_call_details)
        metadata = handler_call_details.invocation_metadata or ()
        given = next((value for key, value in metadata if key == METADATA_KEY), None)
        if given is not None and self._secret.matches(given):
            return await continuation(handler_call_details)
        self._count()
        return grpc.stream_stream_rpc_method_handler(self._refuse if given is None else self._deny)

    async def _refuse(self, _: object, context: Context) -> NoReturn:
        await self._end(context, "this controller wants the secret of its machine")

    async def _deny(self, _: object, context: Context) -> NoReturn:
        await self._end(context, "the secret that came is not the one of this controller")

    async def _end(self, context: Context, why: str) -> NoReturn:
        said = f"{why}: name its file, {self._secret.path}, as secret_file (--secret-file)"
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, said)

    def _count(self) -> None:
        self.refused += 1
        self._untold += 1
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_s >= _TELL_EVERY_S:
            logger.warning("%d calls without the secret of this machine refused", self._untold)
            self._untold, self._told_s = 0, now_s
