"""The command line's calls over gRPC. What a call means is in Console."""

# ruff: noqa: N802 - the names are those of admin.proto

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NoReturn, TypeVar

import grpc

from everstep_controller.console import Console, FollowerTooSlowError
from everstep_controller.injection_desk import CannotInjectError, UnknownInjectionError
from everstep_controller.journal.group_commit import JournalFull
from everstep_controller.lookup import UnknownNameError
from everstep_controller.planned_desk import CannotPlanError
from everstep_controller.snapshot_answers import CannotForgetError
from everstep_proto.generated import admin_pb2, admin_pb2_grpc
from everstep_proto.tls import LOCAL, Identity, IdentityError, Role, peer_identity

Reply = TypeVar("Reply")
Context = grpc.aio.ServicerContext[object, object]

_VIEWERS = frozenset({Role.VIEWER, Role.OPERATOR})
_OPERATORS = frozenset({Role.OPERATOR})
_REASON_MAX = 2000


class AdminServicer(admin_pb2_grpc.AdminServicer):
    """Checks who asks, calls one method, answers."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def ListNodes(
        self, request: admin_pb2.ListNodesRequest, context: Context
    ) -> admin_pb2.ListNodesReply:
        """See admin.proto."""
        return await _read(context, self._console.nodes)

    async def GetNode(
        self, request: admin_pb2.GetNodeRequest, context: Context
    ) -> admin_pb2.NodeDetail:
        """See admin.proto."""
        return await _read(context, lambda: self._console.node(request.node))

    async def ListFindings(
        self, request: admin_pb2.ListFindingsRequest, context: Context
    ) -> admin_pb2.ListFindingsReply:
        """See admin.proto."""
        return await _read(context, lambda: self._console.findings(request.node))

    async def Why(self, request: admin_pb2.WhyRequest, context: Context) -> admin_pb2.WhyReply:
        """See admin.proto."""
        return await _read(context, lambda: self._console.why(request.name))

    async def WatchEvents(
        self, request: admin_pb2.WatchEventsRequest, context: Context
    ) -> AsyncIterator[admin_pb2.Event]:
        """See admin.proto."""
        await _allow(context, _VIEWERS)
        try:
            async for event in self._console.watch(request.subject, request.limit, request.follow):
                yield event
        except UnknownNameError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        except FollowerTooSlowError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))

    async def ListJobs(
        self, request: admin_pb2.ListJobsRequest, context: Context
    ) -> admin_pb2.ListJobsReply:
        """See admin.proto."""
        return await _read(context, self._console.jobs)

    async def GetJob(
        self, request: admin_pb2.GetJobRequest, context: Context
    ) -> admin_pb2.JobDetail:
        """See admin.proto."""
        return await _read(context, lambda: self._console.job(request.job))

    async def GetLedger(
        self, request: admin_pb2.GetLedgerRequest, context: Context
    ) -> admin_pb2.Ledger:
        """See admin.proto."""
        return await _read(context, lambda: self._console.ledger(request.job))

    async def GetSnapshots(
        self, request: admin_pb2.GetSnapshotsRequest, context: Context
    ) -> admin_pb2.Snapshots:
        """See admin.proto."""
        await _allow(context, _VIEWERS)
        return await _change(context, lambda: self._console.snapshots.table(request.job))

    async def ListCopies(
        self, request: admin_pb2.ListCopiesRequest, context: Context
    ) -> AsyncIterator[admin_pb2.CopyLine]:
        """See admin.proto."""
        for line in await _read(context, lambda: self._console.snapshots.copies(request)):
            yield line

    async def ForgetJob(
        self, request: admin_pb2.ForgetJobRequest, context: Context
    ) -> admin_pb2.ForgetJobReply:
        """See admin.proto."""
        who = await _allow(context, _OPERATORS)
        operator = _operator(who, request.operator)
        return await _change(context, lambda: self._console.snapshots.forget(request.job, operator))

    async def Isolate(
        self, request: admin_pb2.IsolateRequest, context: Context
    ) -> admin_pb2.NodeDetail:
        """See admin.proto."""
        who = await _allow(context, _OPERATORS)
        reason = await _reason(context, request.reason)
        operator = _operator(who, request.operator)
        return await _change(context, lambda: self._console.isolate(request.node, operator, reason))

    async def Drain(
        self, request: admin_pb2.DrainRequest, context: Context
    ) -> admin_pb2.DrainReply:
        """See admin.proto."""
        who = await _allow(context, _OPERATORS)
        reason = await _reason(context, request.reason)
        operator = _operator(who, request.operator)
        desk = self._console.planned
        return await _change(context, lambda: desk.drain(request.node, operator, reason))

    async def RestartJob(
        self, request: admin_pb2.RestartJobRequest, context: Context
    ) -> admin_pb2.RestartJobReply:
        """See admin.proto."""
        who = await _allow(context, _OPERATORS)
        reason = await _reason(context, request.reason)
        operator = _operator(who, request.operator)
        desk = self._console.planned
        return await _change(context, lambda: desk.restart(request, operator, reason))

    async def Release(
        self, request: admin_pb2.ReleaseRequest, context: Context
    ) -> admin_pb2.NodeDetail:
        """See admin.proto."""
        who = await _allow(context, _OPERATORS)
        operator, reason = _operator(who, request.operator), request.reason[:_REASON_MAX]
        return await _change(context, lambda: self._console.release(request.node, operator, reason))

    async def Pause(
        self, request: admin_pb2.PauseRequest, context: Context
    ) -> admin_pb2.AutomationReply:
        """See admin.proto."""
        who = await _allow(context, _OPERATORS)
        operator, reason = _operator(who, request.operator), request.reason[:_REASON_MAX]
        return await _change(
            context, lambda: self._console.pause(request.subject, operator, reason)
        )

    async def Resume(
        self, request: admin_pb2.ResumeRequest, context: Context
    ) -> admin_pb2.AutomationReply:
        """See admin.proto."""
        who = await _allow(context, _OPERATORS)
        operator = _operator(who, request.operator)
        return await _change(context, lambda: self._console.resume(request.subject, operator))

    async def Inject(
        self, request: admin_pb2.InjectRequest, context: Context
    ) -> admin_pb2.InjectionLine:
        """See admin.proto."""
        who = await _allow(context, _OPERATORS)
        request.operator = _operator(who, request.operator)
        request.reason = request.reason[:_REASON_MAX]
        return await _change(context, lambda: self._console.injections.inject(request))

    async def ClearInjections(
        self, request: admin_pb2.ClearInjectionsRequest, context: Context
    ) -> admin_pb2.InjectionsReply:
        """See admin.proto."""
        who = await _allow(context, _OPERATORS)
        operator = _operator(who, request.operator)
        desk = self._console.injections
        return await _change(context, lambda: desk.clear(request.node, request.injection, operator))

    async def ListInjections(
        self, request: admin_pb2.ListInjectionsRequest, context: Context
    ) -> admin_pb2.InjectionsReply:
        """See admin.proto."""
        return await _read(context, lambda: self._console.injections.list(request.node))

    async def GetController(
        self, request: admin_pb2.GetControllerRequest, context: Context
    ) -> admin_pb2.ControllerDetail:
        """See admin.proto."""
        return await _read(context, self._console.controller)


async def _allow(context: Context, roles: frozenset[Role]) -> Identity:
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


async def _reason(context: Context, reason: str) -> str:
    if not reason.strip():
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a reason is needed")
    return reason[:_REASON_MAX]


def _operator(identity: Identity, claimed: str) -> str:
    """Return the name for the audit log: the certificate's where there is one."""
    if identity != LOCAL:
        return identity.name
    return re.sub(r"[^\w.@-]", "_", claimed)[:64] or "local"


async def _read(context: Context, ask: Callable[[], Reply]) -> Reply:
    await _allow(context, _VIEWERS)
    try:
        return ask()
    except (UnknownNameError, UnknownInjectionError) as error:
        await _not_found(context, error)


async def _change(context: Context, ask: Callable[[], Awaitable[Reply]]) -> Reply:
    try:
        return await ask()
    except (UnknownNameError, UnknownInjectionError) as error:
        await _not_found(context, error)
    except (CannotInjectError, CannotForgetError, CannotPlanError) as error:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
    except JournalFull as error:
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))


async def _not_found(context: Context, error: LookupError) -> NoReturn:
    await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
