"""Standby gate: what a standby answers from its journal, and what it sends to the active one.

Questions about what the journal says are answered, with how far this standby is behind in the
trailing metadata. Orders, questions that agents would have to be asked, and the streams of agents
are refused with the address of the active controller.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, cast

import grpc

from everstep_proto.controllers import ACTIVE_ADDRESS_KEY, BEHIND_KEY
from everstep_proto.generated import admin_pb2
from everstep_proto.local.client import PROBE

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]
    Handler = grpc.RpcMethodHandler[Any, Any]

# So long a call is let say what it wants, before it is refused.
_FIRST_MESSAGE_S = 1.0
_ADMIN = f"/{admin_pb2.DESCRIPTOR.services_by_name['Admin'].full_name}/"
# All that is told from the journal alone.
ANSWERED = frozenset(
    {
        "GetController",
        "GetFleetLedger",
        "GetHistory",
        "GetJob",
        "GetLedger",
        "GetNode",
        "GetPairTest",
        "GetPolicy",
        "GetSteps",
        "ListCertificates",
        "ListControllers",
        "ListDrivers",
        "ListFindings",
        "ListIncidents",
        "ListInjections",
        "ListJobs",
        "ListMaintenance",
        "ListNodes",
        "ListTokens",
        "WatchEvents",
        "Why",
    }
)


@dataclass(frozen=True, slots=True)
class StandbyView:
    """What a standby says of itself and of the active controller."""

    # Address, "" where it is not known; and the process, as people are told of it.
    active: str
    writer: str
    behind_s: float


class StandbyGate(grpc.aio.ServerInterceptor):
    """Looks at the method of each call."""

    def __init__(self, view: Callable[[], StandbyView]) -> None:
        self._view = view

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        """Let a question pass that the journal answers."""
        method = handler_call_details.method
        if method == PROBE:
            return await continuation(handler_call_details)
        if method.removeprefix(_ADMIN) not in ANSWERED:
            return grpc.stream_stream_rpc_method_handler(self._refuse)
        handler = await continuation(handler_call_details)
        return self._with_lag(handler) if handler is not None else None

    async def _refuse(self, _: object, context: "Context") -> NoReturn:
        # A caller whose first message is under way when the call ends reads of that, and not why:
        # grpc.aio has its write fail with "Internal error from Core".
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_MESSAGE_S):
                await context.read()
        view = self._view()
        if view.active:
            where = f"the active one is {view.active}"
        elif view.writer:
            where = f"the active one is {view.writer}, which has not told its address"
        else:
            where = "nobody is active now; ask again in some seconds"
        told = ((ACTIVE_ADDRESS_KEY, view.active),)
        said = f"this controller stands by and changes nothing; {where}"
        await context.abort(grpc.StatusCode.UNAVAILABLE, said, trailing_metadata=told)

    def _with_lag(self, handler: "Handler") -> "Handler":
        """Return a handler whose answers say how far this standby is behind."""

        def note(context: "Context") -> None:
            view = self._view()
            told = (ACTIVE_ADDRESS_KEY, view.active), (BEHIND_KEY, f"{view.behind_s:.3f}")
            context.set_trailing_metadata(told)

        answering: Callable[[object, Context], Awaitable[object]] = cast("Any", handler.unary_unary)
        streaming: Callable[[object, Context], AsyncIterator[object]] = cast(
            "Any", handler.unary_stream
        )

        async def answer(request: object, context: "Context") -> object:
            note(context)
            return await answering(request, context)

        async def stream(request: object, context: "Context") -> AsyncIterator[object]:
            note(context)
            async for message in streaming(request, context):
                yield message

        made = handler.request_deserializer, handler.response_serializer
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(stream, *made)
        return grpc.unary_unary_rpc_method_handler(cast("Any", answer), *made)
