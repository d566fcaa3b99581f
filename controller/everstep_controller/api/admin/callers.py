"""Callers of the admin API: their roles, their names for the audit log, errors as gRPC codes."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import wraps
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, cast

import grpc
from google.protobuf.message import Message

from everstep_controller.api.admin.askers import NotTheOwnerError
from everstep_controller.api.admin.errors import (
    OrderRefusedError,
    UnknownNameError,
    UnusableRequestError,
)
from everstep_controller.api.admin.event_log import FollowerTooSlowError
from everstep_controller.journal.group_commit import JournalFull
from everstep_controller.journal.port import JournalAccessError
from everstep_proto.call_failures import SAID_KEY
from everstep_proto.tls import LOCAL, Identity, IdentityError, Role, peer_identity

Servicer = TypeVar("Servicer")
Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply")
Context = grpc.aio.ServicerContext[object, object]
Call = Callable[[Servicer, Request, Context], Coroutine[Any, Any, Reply]]

VIEWERS = frozenset({Role.VIEWER, Role.OPERATOR, Role.PAGE})
_OPERATORS = frozenset({Role.OPERATOR})
REASON_MAX = 2000
_CODES: Mapping[type[Exception], grpc.StatusCode] = MappingProxyType(
    {
        UnknownNameError: grpc.StatusCode.NOT_FOUND,
        UnusableRequestError: grpc.StatusCode.INVALID_ARGUMENT,
        OrderRefusedError: grpc.StatusCode.FAILED_PRECONDITION,
        NotTheOwnerError: grpc.StatusCode.PERMISSION_DENIED,
        JournalFull: grpc.StatusCode.UNAVAILABLE,
        JournalAccessError: grpc.StatusCode.UNAVAILABLE,
        FollowerTooSlowError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)


class _Signed(Protocol):
    operator: str


class _Explained(Protocol):
    reason: str


async def allow(context: Context, roles: frozenset[Role]) -> Identity:
    """Return who asks, or end the call."""
    try:
        identity = peer_identity(context.auth_context())
    except IdentityError as error:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
    if identity.role not in roles:
        wanted = " or ".join(sorted(role.value for role in roles))
        await context.abort(
            grpc.StatusCode.PERMISSION_DENIED,
            f"{identity.name} is {identity.role.value}; this call is for {wanted}",
        )
    return identity


def operator_of(identity: Identity, claimed: str) -> str:
    """Return the name for the audit log: the certificate's where there is one."""
    if identity != LOCAL:
        return identity.name
    return re.sub(r"[^\w.@-]", "_", claimed)[:64] or "local"


@asynccontextmanager
async def failing_with_codes(context: Context) -> AsyncIterator[None]:
    """End the call with the code of what is raised within."""
    try:
        yield
    except tuple(_CODES) as error:
        code = next(code for kind, code in _CODES.items() if isinstance(error, kind))
        # Of the same code are calls that never came as far as this.
        await context.abort(code, str(error), trailing_metadata=((SAID_KEY, "1"),))


def question(
    ask: Callable[[Servicer, Request], Awaitable[Reply]],
) -> Call[Servicer, Request, Reply]:
    """Return the call that answers what a viewer may ask."""

    @wraps(ask)
    async def call(servicer: Servicer, request: Request, context: Context) -> Reply:
        await allow(context, VIEWERS)
        async with failing_with_codes(context):
            return await ask(servicer, request)

    return call


def order(
    give: Callable[[Servicer, Request], Awaitable[Reply]], *, with_reason: bool = False
) -> Call[Servicer, Request, Reply]:
    """Return the call that carries out what an operator orders.

    Its ``operator`` is then the name for the audit log, its ``reason`` of bounded length; the call
    is refused that has no reason and needs one.
    """

    @wraps(give)
    async def call(servicer: Servicer, request: Request, context: Context) -> Reply:
        who = await allow(context, _OPERATORS)
        if "reason" in request.DESCRIPTOR.fields_by_name:
            explained = cast("_Explained", request)
            explained.reason = explained.reason[:REASON_MAX]
            if with_reason and not explained.reason.strip():
                said = "a reason is needed; say it with --reason"
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, said)
        signed = cast("_Signed", request)
        signed.operator = operator_of(who, signed.operator)
        async with failing_with_codes(context):
            return await give(servicer, request)

    return call


def explained_order(
    give: Callable[[Servicer, Request], Awaitable[Reply]],
) -> Call[Servicer, Request, Reply]:
    """Return the call that carries out what an operator orders, and says why."""
    return order(give, with_reason=True)
