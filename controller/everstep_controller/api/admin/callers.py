"""Callers of the admin API: their roles, their names for the audit log, errors as gRPC codes."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NoReturn, TypeVar

import grpc

from everstep_controller.api.admin.errors import (
    OrderRefusedError,
    UnknownNameError,
    UnusableRequestError,
)
from everstep_controller.api.admin.ranks import NotTheOwnerError
from everstep_controller.journal.group_commit import JournalFull
from everstep_proto.tls import LOCAL, Identity, IdentityError, Role, peer_identity

Reply = TypeVar("Reply")
Context = grpc.aio.ServicerContext[object, object]

VIEWERS = frozenset({Role.VIEWER, Role.OPERATOR})
OPERATORS = frozenset({Role.OPERATOR})
REASON_MAX = 2000


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


async def reason_of(context: Context, reason: str) -> str:
    """Return a reason of bounded length, or end the call that has none."""
    if not reason.strip():
        said = "a reason is needed; say it with --reason"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, said)
    return reason[:REASON_MAX]


def operator_of(identity: Identity, claimed: str) -> str:
    """Return the name for the audit log: the certificate's where there is one."""
    if identity != LOCAL:
        return identity.name
    return re.sub(r"[^\w.@-]", "_", claimed)[:64] or "local"


async def read(context: Context, ask: Callable[[], Reply]) -> Reply:
    """Answer what a viewer may ask."""
    await allow(context, VIEWERS)
    try:
        return ask()
    except UnknownNameError as error:
        await _not_found(context, error)
    except UnusableRequestError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))


async def change(context: Context, ask: Callable[[], Awaitable[Reply]]) -> Reply:
    """Answer what was allowed already."""
    try:
        return await ask()
    except UnknownNameError as error:
        await _not_found(context, error)
    except OrderRefusedError as error:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
    except UnusableRequestError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    except JournalFull as error:
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))


@asynccontextmanager
async def for_its_owner(context: Context) -> AsyncIterator[None]:
    """End the call that asks what ranks of a job write or do, where that is refused."""
    try:
        yield
    except UnknownNameError as error:
        await _not_found(context, error)
    except NotTheOwnerError as error:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
    except OrderRefusedError as error:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))


async def _not_found(context: Context, error: LookupError) -> NoReturn:
    await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
