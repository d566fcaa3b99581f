"""Admin over gRPC: a deadline for every call, and one sentence for every failure."""

import difflib
import getpass
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import grpc
from google.protobuf.message import Message

from everstep_cli.client.admin import Admin, AdminError, Reply, Request, UnreachableError
from everstep_cli.client.connection import Connection
from everstep_cli.client.grpc_errors import active_told, no_controller, sentence, status
from everstep_cli.client.several_admin import SeveralAdmin
from everstep_common.config import ConfigError
from everstep_common.printable import printable
from everstep_proto.generated import admin_pb2
from everstep_proto.generated.admin_pb2_grpc import AdminStub
from everstep_proto.keepalive import SHORTEST_IDLE_S, keepalive
from everstep_proto.local.client import Metadata, NoControllerError
from everstep_proto.local.ownership import UntrustedError
from everstep_proto.tls import ChannelOptions, channel_credentials, channel_options

# An error message must not wait long for its hint.
_HINT_S = 2.0
# A follower must notice a controller that vanished without closing the connection; the second where
# there is another one to ask.
_OPTIONS: ChannelOptions = keepalive(idle_s=10.0, timeout_s=5.0)
_OF_SEVERAL: ChannelOptions = keepalive(idle_s=SHORTEST_IDLE_S, timeout_s=3.0)


@contextmanager
def connect(connection: Connection) -> Iterator[Admin]:
    """Open connections for the time of a command. Raises AdminError when its keys are unusable."""
    each = connection.each()
    options = _OPTIONS if len(each) == 1 else _OF_SEVERAL
    with ExitStack() as opened:
        members = [GrpcAdmin(opened.enter_context(_channel(one, options)), one) for one in each]
        yield members[0] if len(members) == 1 else SeveralAdmin(members)


def _channel(connection: Connection, options: ChannelOptions) -> grpc.Channel:
    tls = connection.tls
    if not tls.enabled:
        return grpc.insecure_channel(connection.address, options=list(options))
    try:
        credentials = channel_credentials(tls)
    except ConfigError as error:
        raise AdminError(
            f"{error}; look at --tls-ca, --tls-certificate and --tls-key with 'ls -l'"
        ) from error
    return grpc.secure_channel(
        connection.address, credentials, options=channel_options(tls, options)
    )


class GrpcAdmin:
    """See Admin."""

    def __init__(self, channel: grpc.Channel, connection: Connection) -> None:
        self._channel, self._stub = channel, AdminStub(channel)
        self._connection = connection
        self._timeout_s = connection.timeout_s
        self.address = connection.address

    def standby(self, within_s: float) -> str | None:
        """Return the active one's address, as a standby names it; None of the active one itself.

        Raises AdminError where it does not answer within some seconds.
        """
        self._connect(within_s)
        try:
            shown = self._metadata()
            request = admin_pb2.GetControllerRequest()
            _, call = self._stub.GetController.with_call(request, timeout=within_s, metadata=shown)
        except grpc.RpcError as error:
            if (said := active_told(error)) is not None:
                return said
            if status(error)[0] in (
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.DEADLINE_EXCEEDED,
                grpc.StatusCode.UNAUTHENTICATED,
            ):
                raise self._sentence(error, "") from error
            return None
        return active_told(call)

    def _connect(self, within_s: float) -> None:
        """Wait for a connection, or for its failure: a call then says why. Raises AdminError."""
        settled = threading.Event()
        good = (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE)

        def look(state: grpc.ChannelConnectivity) -> None:
            if state in good:
                settled.set()

        self._channel.subscribe(look, try_to_connect=True)
        try:
            if not settled.wait(within_s):
                why = f"it does not answer within {within_s:g} s"
                raise UnreachableError(f"the controller at {self.address}: {why}", why)
        finally:
            self._channel.unsubscribe(look)

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

    def _metadata(self) -> Metadata:
        """Return what a call carries, once it is known whose process the controller is."""
        access = self._connection.access
        try:
            access.check_socket()
            return access.metadata(self._channel, self._timeout_s)
        except UntrustedError as error:
            raise AdminError(str(error)) from error
        except NoControllerError as error:
            raise UnreachableError(
                no_controller(self._connection), "nobody listens there (no such socket)"
            ) from error

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
