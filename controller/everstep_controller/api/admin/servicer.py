"""Admin service over gRPC: the command line's calls, each answered by a method of AdminApi."""

# ruff: noqa: N802 - the names are those of admin.proto
# What a decorator returns has its parameters by place, as gRPC calls it.
# pyright: reportIncompatibleMethodOverride=false

from collections.abc import AsyncIterator
from contextlib import aclosing

from everstep_controller.api.admin.admin_api import AdminApi
from everstep_controller.api.admin.askers import asker
from everstep_controller.api.admin.callers import (
    VIEWERS,
    Context,
    allow,
    explained_order,
    failing_with_codes,
    order,
    question,
)
from everstep_proto.generated import admin_pb2, admin_pb2_grpc


class AdminServicer(admin_pb2_grpc.AdminServicer):
    """Admin service: each call checks who asks, calls one method of AdminApi, and answers."""

    def __init__(self, admin: AdminApi) -> None:
        self._admin = admin
        self._queries = admin.queries
        self._operations = admin.operations

    @question
    async def ListNodes(self, request: admin_pb2.ListNodesRequest) -> admin_pb2.ListNodesReply:
        """See admin.proto."""
        return self._queries.nodes(request)

    @question
    async def GetNode(self, request: admin_pb2.GetNodeRequest) -> admin_pb2.NodeDetail:
        """See admin.proto."""
        return self._queries.node(request.node)

    @question
    async def ListFindings(
        self, request: admin_pb2.ListFindingsRequest
    ) -> admin_pb2.ListFindingsReply:
        """See admin.proto."""
        return self._queries.findings(request.node)

    @question
    async def Why(self, request: admin_pb2.WhyRequest) -> admin_pb2.WhyReply:
        """See admin.proto."""
        return await self._queries.why(request.name)

    async def WatchEvents(
        self, request: admin_pb2.WatchEventsRequest, context: Context
    ) -> AsyncIterator[admin_pb2.Event]:
        """See admin.proto."""
        await allow(context, VIEWERS)
        async with failing_with_codes(context):
            async for event in self._admin.events(request):
                yield event

    @question
    async def ListIncidents(
        self, request: admin_pb2.ListIncidentsRequest
    ) -> admin_pb2.ListIncidentsReply:
        """See admin.proto."""
        return self._queries.incidents(open_only=request.open)

    @question
    async def ListWebhooks(
        self, request: admin_pb2.ListWebhooksRequest
    ) -> admin_pb2.ListWebhooksReply:
        """See admin.proto."""
        del request
        return self._queries.webhooks()

    @order
    async def TestWebhook(
        self, request: admin_pb2.TestWebhookRequest
    ) -> admin_pb2.TestWebhookReply:
        """See admin.proto."""
        return await self._queries.test_webhook(request.name)

    @question
    async def ListJobs(self, request: admin_pb2.ListJobsRequest) -> admin_pb2.ListJobsReply:
        """See admin.proto."""
        return self._queries.jobs()

    @question
    async def GetJob(self, request: admin_pb2.GetJobRequest) -> admin_pb2.JobDetail:
        """See admin.proto."""
        return self._queries.job(request.job)

    @question
    async def GetLedger(self, request: admin_pb2.GetLedgerRequest) -> admin_pb2.Ledger:
        """See admin.proto."""
        return self._queries.ledger(request.job)

    async def ReadLogs(
        self, request: admin_pb2.ReadLogsRequest, context: Context
    ) -> AsyncIterator[admin_pb2.LogLines]:
        """See admin.proto."""
        who = await allow(context, VIEWERS)
        async with (
            failing_with_codes(context),
            aclosing(self._admin.logs.read(request, asker(who, request))) as found,
        ):
            async for lines in found:
                yield lines

    async def InspectJob(
        self, request: admin_pb2.InspectJobRequest, context: Context
    ) -> AsyncIterator[admin_pb2.NodeInspection]:
        """See admin.proto."""
        who = await allow(context, VIEWERS)
        async with (
            failing_with_codes(context),
            aclosing(self._admin.stacks.inspect(request, asker(who, request))) as told,
        ):
            async for node in told:
                yield node

    async def GetSlowness(
        self, request: admin_pb2.GetSlownessRequest, context: Context
    ) -> admin_pb2.Slowness:
        """See admin.proto."""
        who = await allow(context, VIEWERS)
        async with failing_with_codes(context):
            return await self._admin.slowness.judge(request.job, asker(who, request))

    @question
    async def GetFleetLedger(
        self, request: admin_pb2.GetFleetLedgerRequest
    ) -> admin_pb2.FleetLedger:
        """See admin.proto."""
        return await self._queries.fleet_ledger(request)

    async def GetHistory(
        self, request: admin_pb2.GetHistoryRequest, context: Context
    ) -> AsyncIterator[admin_pb2.HistoryRow]:
        """See admin.proto."""
        await allow(context, VIEWERS)
        async with failing_with_codes(context):
            async for row in self._queries.history(request):
                yield row

    @question
    async def GetSteps(self, request: admin_pb2.GetStepsRequest) -> admin_pb2.Steps:
        """See admin.proto."""
        return self._admin.series.steps(request)

    @question
    async def GetSamples(self, request: admin_pb2.GetSamplesRequest) -> admin_pb2.Samples:
        """See admin.proto."""
        return self._admin.series.samples(request.node)

    @question
    async def GetSnapshots(self, request: admin_pb2.GetSnapshotsRequest) -> admin_pb2.Snapshots:
        """See admin.proto."""
        return await self._admin.snapshots.table(request.job)

    async def ListCopies(
        self, request: admin_pb2.ListCopiesRequest, context: Context
    ) -> AsyncIterator[admin_pb2.CopyLine]:
        """See admin.proto."""
        await allow(context, VIEWERS)
        async with failing_with_codes(context):
            for line in self._admin.snapshots.copies(request):
                yield line

    @order
    async def ForgetJob(self, request: admin_pb2.ForgetJobRequest) -> admin_pb2.ForgetJobReply:
        """See admin.proto."""
        return await self._admin.snapshots.forget(request.job, request.operator)

    @explained_order
    async def Isolate(self, request: admin_pb2.IsolateRequest) -> admin_pb2.NodeDetail:
        """See admin.proto."""
        return await self._operations.isolate(request.node, request.operator, request.reason)

    @explained_order
    async def RemoveNode(self, request: admin_pb2.RemoveNodeRequest) -> admin_pb2.RemoveNodeReply:
        """See admin.proto."""
        return await self._operations.remove(request.node, request.operator, request.reason)

    @explained_order
    async def DeclareLost(
        self, request: admin_pb2.DeclareLostRequest
    ) -> admin_pb2.DeclareLostReply:
        """See admin.proto."""
        return await self._operations.declare_lost(request.node, request.operator, request.reason)

    @explained_order
    async def Drain(self, request: admin_pb2.DrainRequest) -> admin_pb2.DrainReply:
        """See admin.proto."""
        return await self._admin.planned_work.drain(request.node, request.operator, request.reason)

    @explained_order
    async def RestartJob(self, request: admin_pb2.RestartJobRequest) -> admin_pb2.RestartJobReply:
        """See admin.proto."""
        return await self._admin.planned_work.restart(request, request.operator, request.reason)

    @explained_order
    async def StopJob(self, request: admin_pb2.StopJobRequest) -> admin_pb2.StopJobReply:
        """See admin.proto."""
        return await self._admin.planned_work.stop(request, request.operator, request.reason)

    @order
    async def CancelRestart(
        self, request: admin_pb2.CancelRestartRequest
    ) -> admin_pb2.CancelRestartReply:
        """See admin.proto."""
        return await self._admin.planned_work.cancel(request, request.operator)

    @order
    async def Release(self, request: admin_pb2.ReleaseRequest) -> admin_pb2.NodeDetail:
        """See admin.proto."""
        return await self._operations.release(request, request.operator, request.reason)

    @order
    async def Pause(self, request: admin_pb2.PauseRequest) -> admin_pb2.AutomationReply:
        """See admin.proto."""
        if request.drivers:
            return await self._operations.pause_drivers(request.operator, request.reason)
        return await self._operations.pause(request.subject, request.operator, request.reason)

    @order
    async def Resume(self, request: admin_pb2.ResumeRequest) -> admin_pb2.AutomationReply:
        """See admin.proto."""
        if request.drivers:
            return await self._operations.resume_drivers(request.operator)
        return await self._operations.resume(request.subject, request.operator)

    @question
    async def GetPolicy(self, request: admin_pb2.GetPolicyRequest) -> admin_pb2.PolicyReply:
        """See admin.proto."""
        return self._admin.policies.policy(request)

    @question
    async def ListDrivers(
        self, request: admin_pb2.ListDriversRequest
    ) -> admin_pb2.ListDriversReply:
        """See admin.proto."""
        return self._admin.drivers.all()

    @order
    async def Inject(self, request: admin_pb2.InjectRequest) -> admin_pb2.InjectionLine:
        """See admin.proto."""
        return await self._admin.injections.inject(request)

    @order
    async def ClearInjections(
        self, request: admin_pb2.ClearInjectionsRequest
    ) -> admin_pb2.InjectionsReply:
        """See admin.proto."""
        return await self._admin.injections.clear(request.node, request.injection, request.operator)

    @question
    async def ListInjections(
        self, request: admin_pb2.ListInjectionsRequest
    ) -> admin_pb2.InjectionsReply:
        """See admin.proto."""
        return self._admin.injections.list(request.node)

    @order
    async def TestPair(self, request: admin_pb2.TestPairRequest) -> admin_pb2.PairTestReply:
        """See admin.proto."""
        return await self._admin.pair_tests.test(request.node, request.partner, request.operator)

    @question
    async def GetPairTest(self, request: admin_pb2.GetPairTestRequest) -> admin_pb2.PairTestReply:
        """See admin.proto."""
        return self._admin.pair_tests.newest(request.node)

    @question
    async def GetController(
        self, request: admin_pb2.GetControllerRequest
    ) -> admin_pb2.ControllerDetail:
        """See admin.proto."""
        return self._queries.controller()

    @order
    async def AddMaintenance(
        self, request: admin_pb2.AddMaintenanceRequest
    ) -> admin_pb2.MaintenanceWindow:
        """See admin.proto."""
        return await self._admin.maintenance.add(request, request.operator)

    @question
    async def ListMaintenance(
        self, request: admin_pb2.ListMaintenanceRequest
    ) -> admin_pb2.ListMaintenanceReply:
        """See admin.proto."""
        return self._admin.maintenance.list(request)

    @order
    async def CancelMaintenance(
        self, request: admin_pb2.CancelMaintenanceRequest
    ) -> admin_pb2.MaintenanceWindow:
        """See admin.proto."""
        return await self._admin.maintenance.cancel(request.window, request.operator)

    @order
    async def MakeToken(self, request: admin_pb2.MakeTokenRequest) -> admin_pb2.MakeTokenReply:
        """See admin.proto."""
        return await self._admin.enrolment.make_token(request, request.operator)

    @question
    async def ListTokens(self, request: admin_pb2.ListTokensRequest) -> admin_pb2.ListTokensReply:
        """See admin.proto."""
        del request
        return self._admin.enrolment.list_tokens()

    @order
    async def RevokeToken(self, request: admin_pb2.RevokeTokenRequest) -> admin_pb2.TokenLine:
        """See admin.proto."""
        return await self._admin.enrolment.revoke_token(request.id, request.operator)

    @question
    async def ListCertificates(
        self, request: admin_pb2.ListCertificatesRequest
    ) -> admin_pb2.ListCertificatesReply:
        """See admin.proto."""
        del request
        return self._admin.enrolment.list_certificates()

    @explained_order
    async def RevokeCertificates(
        self, request: admin_pb2.RevokeCertificatesRequest
    ) -> admin_pb2.RevokeCertificatesReply:
        """See admin.proto."""
        return await self._admin.enrolment.revoke(request, request.operator)

    @question
    async def ListControllers(
        self, request: admin_pb2.ListControllersRequest
    ) -> admin_pb2.ListControllersReply:
        """See admin.proto."""
        del request
        return await self._admin.controllers.list()

    @explained_order
    async def HandOver(self, request: admin_pb2.HandOverRequest) -> admin_pb2.HandOverReply:
        """See admin.proto."""
        return await self._admin.controllers.hand_over(request.operator, request.reason)
