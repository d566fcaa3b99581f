"""Admin over gRPC: a deadline for every call, and one sentence for every failure."""

import difflib
import getpass
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import grpc
from google.protobuf.message import Message

from everstep_cli.client.admin import AdminError, NameNotFoundError, Reply, Request
from everstep_cli.client.connection import Connection
from everstep_cli.client.grpc_errors import no_controller, sentence
from everstep_cli.client.times import RequestedTime
from everstep_common.config import ConfigError
from everstep_common.printable import printable
from everstep_proto.generated import admin_pb2
from everstep_proto.generated.admin_pb2_grpc import AdminStub
from everstep_proto.keepalive import keepalive
from everstep_proto.local.client import Metadata, NoControllerError
from everstep_proto.local.ownership import UntrustedError
from everstep_proto.tls import ChannelOptions, channel_credentials, channel_options

# An error message must not wait long for its hint.
_HINT_S = 2.0
# Nodes in one message, which may have four megabytes: each has sentences of a few hundred bytes.
_PAGE = 2000
# A follower must notice a controller that vanished without closing the connection.
_OPTIONS: ChannelOptions = keepalive(idle_s=10.0, timeout_s=5.0)


@contextmanager
def connect(connection: Connection) -> Iterator["GrpcAdmin"]:
    """Open a connection for the time of a command. Raises AdminError when its keys are unusable."""
    with _channel(connection) as channel:
        yield GrpcAdmin(channel, connection)


def _channel(connection: Connection) -> grpc.Channel:
    tls = connection.tls
    if not tls.enabled:
        return grpc.insecure_channel(connection.address, options=_OPTIONS)
    try:
        credentials = channel_credentials(tls)
    except ConfigError as error:
        raise AdminError(
            f"{error}; look at --tls-ca, --tls-certificate and --tls-key with 'ls -l'"
        ) from error
    options = channel_options(tls, _OPTIONS)
    return grpc.secure_channel(connection.address, credentials, options=options)


class GrpcAdmin:
    """See Admin."""

    def __init__(self, channel: grpc.Channel, connection: Connection) -> None:
        self._channel, self._stub = channel, AdminStub(channel)
        self._connection = connection
        self._timeout_s = connection.timeout_s

    def call(
        self,
        method: "Callable[[AdminStub], grpc.UnaryUnaryMultiCallable[Request, Reply]]",
        request: Request,
        about: str = "",
    ) -> Reply:
        """See Admin."""
        _fill_in_operator(request)
        try:
            shown = self._metadata()
            reply = method(self._stub)(request, timeout=self._timeout_s, metadata=shown)
        except grpc.RpcError as error:
            raise self._sentence(error, about) from error
        make_printable(reply)
        return reply

    def stream(
        self,
        method: "Callable[[AdminStub], grpc.UnaryStreamMultiCallable[Request, Reply]]",
        request: Request,
        about: str = "",
        *,
        endless: bool = False,
    ) -> Iterator[Reply]:
        """See Admin. Keepalive notices a dead controller where there is no deadline."""
        _fill_in_operator(request)
        deadline_s = None if endless else self._timeout_s
        try:
            shown = self._metadata()
            for reply in method(self._stub)(request, timeout=deadline_s, metadata=shown):
                make_printable(reply)
                yield reply
        except grpc.RpcError as error:
            raise self._sentence(error, about) from error

    def nodes(self, request: admin_pb2.ListNodesRequest | None = None) -> admin_pb2.ListNodesReply:
        """See Reader."""
        asked = admin_pb2.ListNodesRequest(page_nodes=_PAGE)
        if request is not None:
            asked.MergeFrom(request)
        whole = self.call(lambda stub: stub.ListNodes, asked)
        while whole.next_page_token:
            asked.page_token = whole.next_page_token
            page = self.call(lambda stub: stub.ListNodes, asked)
            whole.nodes.MergeFrom(page.nodes)
            whole.next_page_token = page.next_page_token
        return whole

    def node(self, name: str) -> admin_pb2.NodeDetail:
        """See Reader."""
        request = admin_pb2.GetNodeRequest(node=name)
        return self.call(lambda stub: stub.GetNode, request, name)

    def findings(self, node: str) -> admin_pb2.ListFindingsReply:
        """See Reader."""
        request = admin_pb2.ListFindingsRequest(node=node)
        return self.call(lambda stub: stub.ListFindings, request, node)

    def incidents(self, *, open_only: bool) -> admin_pb2.ListIncidentsReply:
        """See Reader."""
        request = admin_pb2.ListIncidentsRequest(open=open_only)
        return self.call(lambda stub: stub.ListIncidents, request)

    def why(self, name: str) -> admin_pb2.WhyReply:
        """See Reader."""
        request = admin_pb2.WhyRequest(name=name)
        return self.call(lambda stub: stub.Why, request, name)

    def events(
        self, subject: str, limit: int, follow: bool, since: RequestedTime | None = None
    ) -> Iterator[admin_pb2.Event]:
        """See Reader."""
        request = admin_pb2.WatchEventsRequest(subject=subject, limit=limit, follow=follow)
        if since is not None:
            request.since_ns, request.within_ns = since.at_ns or 0, since.in_ns
        return self.stream(lambda stub: stub.WatchEvents, request, subject, endless=follow)

    def snapshots(self, job: str) -> admin_pb2.Snapshots:
        """See Reader."""
        request = admin_pb2.GetSnapshotsRequest(job=job)
        return self.call(lambda stub: stub.GetSnapshots, request, job)

    def copies(self, job: str, step: int | None, node: str) -> Iterator[admin_pb2.CopyLine]:
        """See Reader."""
        request = admin_pb2.ListCopiesRequest(job=job, step=step, node=node)
        return self.stream(lambda stub: stub.ListCopies, request, job)

    def jobs(self) -> admin_pb2.ListJobsReply:
        """See Reader."""
        request = admin_pb2.ListJobsRequest()
        return self.call(lambda stub: stub.ListJobs, request)

    def job(self, name: str) -> admin_pb2.JobDetail:
        """See Reader."""
        request = admin_pb2.GetJobRequest(job=name)
        return self.call(lambda stub: stub.GetJob, request, name)

    def ledger(self, job: str) -> admin_pb2.Ledger:
        """See Reader."""
        request = admin_pb2.GetLedgerRequest(job=job)
        return self.call(lambda stub: stub.GetLedger, request, job)

    def logs(self, job: str, rank: int | None, *, follow: bool) -> Iterator[admin_pb2.LogLines]:
        """See Reader."""
        request = admin_pb2.ReadLogsRequest(job=job, rank=rank, follow=follow)
        return self.stream(lambda stub: stub.ReadLogs, request, job, endless=follow)

    def inspect(self, job: str) -> Iterator[admin_pb2.NodeInspection]:
        """See Reader."""
        request = admin_pb2.InspectJobRequest(job=job)
        return self.stream(lambda stub: stub.InspectJob, request, job)

    def slowness(self, job: str) -> admin_pb2.Slowness:
        """See Reader."""
        request = admin_pb2.GetSlownessRequest(job=job)
        return self.call(lambda stub: stub.GetSlowness, request, job)

    def fleet_ledger(self, period: str, periods: int) -> admin_pb2.FleetLedger:
        """See Reader."""
        request = admin_pb2.GetFleetLedgerRequest(period=period, periods=periods)
        return self.call(lambda stub: stub.GetFleetLedger, request)

    def controller(self) -> admin_pb2.ControllerDetail:
        """See Reader."""
        request = admin_pb2.GetControllerRequest()
        return self.call(lambda stub: stub.GetController, request)

    def injections(self, node: str) -> admin_pb2.InjectionsReply:
        """See Reader."""
        request = admin_pb2.ListInjectionsRequest(node=node)
        return self.call(lambda stub: stub.ListInjections, request, node)

    def forget(self, job: str) -> admin_pb2.ForgetJobReply:
        """See Operator."""
        request = admin_pb2.ForgetJobRequest(job=job)
        return self.call(lambda stub: stub.ForgetJob, request, job)

    def inject(self, node: str, spec: str, seconds: float, reason: str) -> admin_pb2.InjectionLine:
        """See Operator."""
        request = admin_pb2.InjectRequest(
            node=node,
            spec=spec,
            duration_ns=int(seconds * 1e9),
            reason=reason,
        )
        return self.call(lambda stub: stub.Inject, request, node)

    def clear_injections(self, node: str, injection: str) -> admin_pb2.InjectionsReply:
        """See Operator."""
        request = admin_pb2.ClearInjectionsRequest(node=node, injection=injection)
        try:
            return self.call(lambda stub: stub.ClearInjections, request, node)
        except NameNotFoundError as error:
            known = self.injections(node).injections  # says it of a node that is not known
            ids = ", ".join(one.injection for one in known) or "none"
            raise NameNotFoundError(
                f"no injection {injection!r} on {node}; it has: {ids}"
            ) from error

    def isolate(self, node: str, reason: str) -> admin_pb2.NodeDetail:
        """See Operator."""
        request = admin_pb2.IsolateRequest(node=node, reason=reason)
        return self.call(lambda stub: stub.Isolate, request, node)

    def remove_node(self, node: str, reason: str) -> admin_pb2.RemoveNodeReply:
        """See Operator."""
        request = admin_pb2.RemoveNodeRequest(node=node, reason=reason)
        return self.call(lambda stub: stub.RemoveNode, request, node)

    def declare_lost(self, node: str, reason: str) -> admin_pb2.DeclareLostReply:
        """See Operator."""
        request = admin_pb2.DeclareLostRequest(node=node, reason=reason)
        return self.call(lambda stub: stub.DeclareLost, request, node)

    def drain(self, node: str, reason: str) -> admin_pb2.DrainReply:
        """See Operator."""
        request = admin_pb2.DrainRequest(node=node, reason=reason)
        return self.call(lambda stub: stub.Drain, request, node)

    def restart(self, job: str, at_step: int | None, reason: str) -> admin_pb2.RestartJobReply:
        """See Operator."""
        request = admin_pb2.RestartJobRequest(job=job, at_step=at_step, reason=reason)
        return self.call(lambda stub: stub.RestartJob, request, job)

    def stop(self, job: str, at_step: int | None, reason: str) -> admin_pb2.StopJobReply:
        """See Operator."""
        request = admin_pb2.StopJobRequest(job=job, at_step=at_step, reason=reason)
        return self.call(lambda stub: stub.StopJob, request, job)

    def cancel_restart(self, job: str, reason: str) -> admin_pb2.CancelRestartReply:
        """See Operator."""
        request = admin_pb2.CancelRestartRequest(job=job, reason=reason)
        return self.call(lambda stub: stub.CancelRestart, request, job)

    def add_maintenance(
        self, request: admin_pb2.AddMaintenanceRequest
    ) -> admin_pb2.MaintenanceWindow:
        """See Operator."""
        name = request.nodes[0] if len(request.nodes) == 1 else ""
        return self.call(lambda stub: stub.AddMaintenance, request, name)

    def cancel_maintenance(self, window: str) -> admin_pb2.MaintenanceWindow:
        """See Operator."""
        request = admin_pb2.CancelMaintenanceRequest(window=window)
        try:
            return self.call(lambda stub: stub.CancelMaintenance, request, window)
        except NameNotFoundError as error:
            raise NameNotFoundError(
                f"no maintenance window named {window!r}; 'everstep maintenance list' has them"
            ) from error

    def maintenance(self, every: bool) -> admin_pb2.ListMaintenanceReply:
        """See Reader."""
        request = admin_pb2.ListMaintenanceRequest(all=every)
        return self.call(lambda stub: stub.ListMaintenance, request)

    def release(self, node: str, reason: str, accepted: Sequence[str] = ()) -> admin_pb2.NodeDetail:
        """See Operator."""
        request = admin_pb2.ReleaseRequest(node=node, reason=reason, accepted=accepted)
        return self.call(lambda stub: stub.Release, request, node)

    def pause(self, subject: str, reason: str) -> admin_pb2.AutomationReply:
        """See Operator."""
        request = admin_pb2.PauseRequest(subject=subject, reason=reason)
        return self.call(lambda stub: stub.Pause, request, subject)

    def resume(self, subject: str) -> admin_pb2.AutomationReply:
        """See Operator."""
        request = admin_pb2.ResumeRequest(subject=subject)
        return self.call(lambda stub: stub.Resume, request, subject)

    def _metadata(self) -> Metadata:
        """Return what a call carries, once it is known whose process the controller is."""
        access = self._connection.access
        try:
            access.check_socket()
            return access.metadata(self._channel, self._timeout_s)
        except UntrustedError as error:
            raise AdminError(str(error)) from error
        except NoControllerError as error:
            raise AdminError(no_controller(self._connection)) from error

    def _sentence(self, error: grpc.RpcError, name: str) -> AdminError:
        return sentence(self._connection, error, name, self._nearest)

    def _nearest(self, name: str) -> str:
        ask, every_node, every_job = (
            self._stub,
            admin_pb2.ListNodesRequest(),
            admin_pb2.ListJobsRequest(),
        )
        try:
            shown = self._metadata()
            nodes = ask.ListNodes(every_node, timeout=_HINT_S, metadata=shown).nodes
            jobs = ask.ListJobs(every_job, timeout=_HINT_S, metadata=shown).jobs
        except (grpc.RpcError, AdminError):
            return "'everstep nodes' lists nodes, 'everstep jobs' jobs"
        known = [*(node.node for node in nodes), *(job.job for job in jobs)]
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"{hint}'everstep nodes' lists nodes, 'everstep jobs' jobs"


def _fill_in_operator(request: Message) -> None:
    """Say who asks, where the request has a field for it."""
    if "operator" in request.DESCRIPTOR.fields_by_name:
        setattr(request, "operator", getpass.getuser())  # noqa: B010 - not of every message


def make_printable(message: Message) -> None:
    """Make every text in a message printable."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            if isinstance(value, str):
                setattr(message, field.name, printable(value))
            else:
                value[:] = [printable(item) for item in value]
        elif field.type == field.TYPE_MESSAGE:
            for part in [value] if isinstance(value, Message) else value:
                make_printable(part)
