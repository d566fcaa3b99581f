"""Admin service over gRPC: the command line's calls, each answered by a method of AdminApi."""

# ruff: noqa: N802 - the names are those of admin.proto

from collections.abc import AsyncIterator
from contextlib import aclosing

import grpc

from everstep_controller.api.admin.admin_api import AdminApi
from everstep_controller.api.admin.callers import (
    OPERATORS,
    REASON_MAX,
    VIEWERS,
    Context,
    allow,
    change,
    for_its_owner,
    operator_of,
    read,
    reason_of,
)
from everstep_controller.api.admin.errors import UnknownNameError
from everstep_controller.api.admin.event_log import FollowerTooSlowError
from everstep_proto.generated import admin_pb2, admin_pb2_grpc


class AdminServicer(admin_pb2_grpc.AdminServicer):
    """Admin service: each call checks who asks, calls one method of AdminApi, and answers."""

    def __init__(self, admin: AdminApi) -> None:
        self._admin = admin
        self._queries = admin.queries
        self._operations = admin.operations

    async def ListNodes(
        self, request: admin_pb2.ListNodesRequest, context: Context
    ) -> admin_pb2.ListNodesReply:
        """See admin.proto."""
        return await read(context, lambda: self._queries.nodes(request))

    async def GetNode(
        self, request: admin_pb2.GetNodeRequest, context: Context
    ) -> admin_pb2.NodeDetail:
        """See admin.proto."""
        return await read(context, lambda: self._queries.node(request.node))

    async def ListFindings(
        self, request: admin_pb2.ListFindingsRequest, context: Context
    ) -> admin_pb2.ListFindingsReply:
        """See admin.proto."""
        return await read(context, lambda: self._queries.findings(request.node))

    async def Why(self, request: admin_pb2.WhyRequest, context: Context) -> admin_pb2.WhyReply:
        """See admin.proto."""
        return await read(context, lambda: self._queries.why(request.name))

    async def WatchEvents(
        self, request: admin_pb2.WatchEventsRequest, context: Context
    ) -> AsyncIterator[admin_pb2.Event]:
        """See admin.proto."""
        await allow(context, VIEWERS)
        try:
            async for event in self._admin.events(request):
                yield event
        except UnknownNameError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        except FollowerTooSlowError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))

    async def ListIncidents(
        self, request: admin_pb2.ListIncidentsRequest, context: Context
    ) -> admin_pb2.ListIncidentsReply:
        """See admin.proto."""
        return await read(context, lambda: self._queries.incidents(open_only=request.open))

    async def ListWebhooks(
        self, request: admin_pb2.ListWebhooksRequest, context: Context
    ) -> admin_pb2.ListWebhooksReply:
        """See admin.proto."""
        return await read(context, self._queries.webhooks)

    async def TestWebhook(
        self, request: admin_pb2.TestWebhookRequest, context: Context
    ) -> admin_pb2.TestWebhookReply:
        """See admin.proto."""
        await allow(context, OPERATORS)
        return await change(context, lambda: self._queries.test_webhook(request.name))

    async def ListJobs(
        self, request: admin_pb2.ListJobsRequest, context: Context
    ) -> admin_pb2.ListJobsReply:
        """See admin.proto."""
        return await read(context, self._queries.jobs)

    async def GetJob(
        self, request: admin_pb2.GetJobRequest, context: Context
    ) -> admin_pb2.JobDetail:
        """See admin.proto."""
        return await read(context, lambda: self._queries.job(request.job))

    async def GetLedger(
        self, request: admin_pb2.GetLedgerRequest, context: Context
    ) -> admin_pb2.Ledger:
        """See admin.proto."""
        return await read(context, lambda: self._queries.ledger(request.job))

    async def ReadLogs(
        self, request: admin_pb2.ReadLogsRequest, context: Context
    ) -> AsyncIterator[admin_pb2.LogLines]:
        """See admin.proto."""
        who = await allow(context, VIEWERS)
        async with for_its_owner(context), aclosing(self._admin.logs.read(request, who)) as found:
            async for lines in found:
                yield lines

    async def InspectJob(
        self, request: admin_pb2.InspectJobRequest, context: Context
    ) -> AsyncIterator[admin_pb2.NodeInspection]:
        """See admin.proto."""
        who = await allow(context, VIEWERS)
        async with (
            for_its_owner(context),
            aclosing(self._admin.stacks.inspect(request, who)) as told,
        ):
            async for node in told:
                yield node

    async def GetSlowness(
        self, request: admin_pb2.GetSlownessRequest, context: Context
    ) -> admin_pb2.Slowness:
        """See admin.proto."""
        who = await allow(context, VIEWERS)
        async with for_its_owner(context):
            return await self._admin.slowness.judge(request.job, who)

    async def GetFleetLedger(
        self, request: admin_pb2.GetFleetLedgerRequest, context: Context
    ) -> admin_pb2.FleetLedger:
        """See admin.proto."""
        await allow(context, VIEWERS)
        return await change(context, lambda: self._queries.fleet_ledger(request))

    async def GetSnapshots(
        self, request: admin_pb2.GetSnapshotsRequest, context: Context
    ) -> admin_pb2.Snapshots:
        """See admin.proto."""
        await allow(context, VIEWERS)
        return await change(context, lambda: self._admin.snapshots.table(request.job))

    async def ListCopies(
        self, request: admin_pb2.ListCopiesRequest, context: Context
    ) -> AsyncIterator[admin_pb2.CopyLine]:
        """See admin.proto."""
        for line in await read(context, lambda: self._admin.snapshots.copies(request)):
            yield line

    async def ForgetJob(
        self, request: admin_pb2.ForgetJobRequest, context: Context
    ) -> admin_pb2.ForgetJobReply:
        """See admin.proto."""
        who = await allow(context, OPERATORS)
        operator = operator_of(who, request.operator)
        return await change(context, lambda: self._admin.snapshots.forget(request.job, operator))

    async def Isolate(
        self, request: admin_pb2.IsolateRequest, context: Context
    ) -> admin_pb2.NodeDetail:
        """See admin.proto."""
        who = await allow(context, OPERATORS)
        reason = await reason_of(context, request.reason)
        operator = operator_of(who, request.operator)
        return await change(
            context, lambda: self._operations.isolate(request.node, operator, reason)
        )

    async def RemoveNode(
        self, request: admin_pb2.RemoveNodeRequest, context: Context
    ) -> admin_pb2.RemoveNodeReply:
        """See admin.proto."""
        who = await allow(context, OPERATORS)
        reason = await reason_of(context, request.reason)
        operator = operator_of(who, request.operator)
        return await change(
            context, lambda: self._operations.remove(request.node, operator, reason)
        )

    async def DeclareLost(
        self, request: admin_pb2.DeclareLostRequest, context: Context
    ) -> admin_pb2.DeclareLostReply:
        """See admin.proto."""
        who = await allow(context, OPERATORS)
        reason = await reason_of(context, request.reason)
        operator = operator_of(who, request.operator)
        return await change(
            context, lambda: self._operations.declare_lost(request.node, operator, reason)
        )

    async def Drain(
        self, request: admin_pb2.DrainRequest, context: Context
    ) -> admin_pb2.DrainReply:
        """See admin.proto."""
        who = await allow(context, OPERATORS)
        reason = await reason_of(context, request.reason)
        operator = operator_of(who, request.operator)
        planned_work = self._admin.planned_work
        return await change(context, lambda: planned_work.drain(request.node, operator, reason))

    async def RestartJob(
        self, request: admin_pb2.RestartJobRequest, context: Context
    ) -> admin_pb2.RestartJobReply:
        """See admin.proto."""
        who = await allow(context, OPERATORS)
        reason = await reason_of(context, request.reason)
        operator = operator_of(who, request.operator)
        planned_work = self._admin.planned_work
        return await change(context, lambda: planned_work.restart(request, operator, reason))

    async def StopJob(
        self, request: admin_pb2.StopJobRequest, context: Context
    ) -> admin_pb2.StopJobReply:
        """See admin.proto."""
        who = await allow(context, OPERATORS)
        reason = await reason_of(context, request.reason)
        operator = operator_of(who, request.operator)
        planned_work = self._admin.planned_work
        return await change(context, lambda: planned_work.stop(request, operator, reason))

    async def CancelRestart(
        self, request: admin_pb2.CancelRestartRequest, context: Context
    ) -> admin_pb2.CancelRestartReply:
        """See admin.proto."""
        who = await allow(context, OPERATORS)
        request.reason = request.reason[:REASON_MAX]
        operator = operator_of(who, request.operator)
        return await change(context, lambda: self._admin.planned_work.cancel(request, operator))

    async def Release(
        self, request: admin_pb2.ReleaseRequest, context: Context
    ) -> admin_pb2.NodeDetail:
        """See admin.proto."""
        who = await allow(context, OPERATORS)
        operator, reason = operator_of(who, request.operator), request.reason[:REASON_MAX]
        return await change(context, lambda: self._operations.release(request, operator, reason))

    async def Pause(
        self, request: admin_pb2.PauseRequest, context: Context
    ) -> admin_pb2.AutomationReply:
        """See admin.proto."""
        who = await allow(context, OPERATORS)
        operator, reason = operator_of(who, request.operator), request.reason[:REASON_MAX]
        return await change(
            context, lambda: self._operations.pause(request.subject, operator, reason)
        )

    async def Resume(
        self, request: admin_pb2.ResumeRequest, context: Context
    ) -> admin_pb2.AutomationReply:
        """See admin.proto."""
        who = await allow(context, OPERATORS)
        operator = operator_of(who, request.operator)
        return await change(context, lambda: self._operations.resume(request.subject, operator))

    async def Inject(
        self, request: admin_pb2.InjectRequest, context: Context
    ) -> admin_pb2.InjectionLine:
        """See admin.proto."""
        who = await allow(context, OPERATORS)
        request.operator = operator_of(who, request.operator)
        request.reason = request.reason[:REASON_MAX]
        return await change(context, lambda: self._admin.injections.inject(request))

    async def ClearInjections(
        self, request: admin_pb2.ClearInjectionsRequest, context: Context
    ) -> admin_pb2.InjectionsReply:
        """See admin.proto."""
        who = await allow(context, OPERATORS)
        operator = operator_of(who, request.operator)
        operations = self._admin.injections
        return await change(
            context, lambda: operations.clear(request.node, request.injection, operator)
        )

    async def ListInjections(
        self, request: admin_pb2.ListInjectionsRequest, context: Context
    ) -> admin_pb2.InjectionsReply:
        """See admin.proto."""
        return await read(context, lambda: self._admin.injections.list(request.node))

    async def TestPair(
        self, request: admin_pb2.TestPairRequest, context: Context
    ) -> admin_pb2.PairTestReply:
        """See admin.proto."""
        who = await allow(context, OPERATORS)
        operator = operator_of(who, request.operator)
        operations = self._admin.pair_tests
        return await change(
            context, lambda: operations.test(request.node, request.partner, operator)
        )

    async def GetPairTest(
        self, request: admin_pb2.GetPairTestRequest, context: Context
    ) -> admin_pb2.PairTestReply:
        """See admin.proto."""
        return await read(context, lambda: self._admin.pair_tests.newest(request.node))

    async def GetController(
        self, request: admin_pb2.GetControllerRequest, context: Context
    ) -> admin_pb2.ControllerDetail:
        """See admin.proto."""
        return await read(context, self._queries.controller)

    async def AddMaintenance(
        self, request: admin_pb2.AddMaintenanceRequest, context: Context
    ) -> admin_pb2.MaintenanceWindow:
        """See admin.proto."""
        who = await allow(context, OPERATORS)
        operator = operator_of(who, request.operator)
        request.reason = request.reason[:REASON_MAX]
        return await change(context, lambda: self._admin.maintenance.add(request, operator))

    async def ListMaintenance(
        self, request: admin_pb2.ListMaintenanceRequest, context: Context
    ) -> admin_pb2.ListMaintenanceReply:
        """See admin.proto."""
        return await read(context, lambda: self._admin.maintenance.list(request))

    async def CancelMaintenance(
        self, request: admin_pb2.CancelMaintenanceRequest, context: Context
    ) -> admin_pb2.MaintenanceWindow:
        """See admin.proto."""
        who = await allow(context, OPERATORS)
        operator = operator_of(who, request.operator)
        return await change(
            context, lambda: self._admin.maintenance.cancel(request.window, operator)
        )
