"""Admin: the Protocol of all calls to a controller, and the errors in which a call can end."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from everstep_cli.client.times import RequestedTime
from everstep_proto.generated import admin_pb2
from everstep_proto.generated.admin_pb2_grpc import AdminStub

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)


class AdminError(Exception):
    """The controller could not be asked, or said no; one sentence that names the next command."""


class UnusableError(AdminError):
    """Request that makes no sense to the controller, whenever it is made."""


class RefusedError(AdminError):
    """The controller does not do that as things are; it may do the same for another node."""


class NameNotFoundError(UnusableError):
    """There is no node or job of this name."""


class Reader(Protocol):
    """Calls that a viewer may make; every method raises AdminError."""

    def nodes(self, request: admin_pb2.ListNodesRequest | None = None) -> admin_pb2.ListNodesReply:
        """Return all nodes, or those that are asked for, of all pages together."""
        ...

    def node(self, name: str) -> admin_pb2.NodeDetail:
        """Return everything known of one node."""
        ...

    def findings(self, node: str) -> admin_pb2.ListFindingsReply:
        """Return the open findings of one node, or of all for an empty name."""
        ...

    def incidents(self, *, open_only: bool) -> admin_pb2.ListIncidentsReply:
        """Return the incidents of the fleet, newest first."""
        ...

    def why(self, name: str) -> admin_pb2.WhyReply:
        """Explain the state of a node or job."""
        ...

    def events(
        self, subject: str, limit: int, follow: bool, since: RequestedTime | None = None
    ) -> Iterator[admin_pb2.Event]:
        """Yield what happened, from ``since`` on, oldest first; with ``follow``, what happens."""
        ...

    def jobs(self) -> admin_pb2.ListJobsReply:
        """Return all jobs."""
        ...

    def job(self, name: str) -> admin_pb2.JobDetail:
        """Return everything known of one job."""
        ...

    def ledger(self, job: str) -> admin_pb2.Ledger:
        """Return where the time of a job went."""
        ...

    def logs(self, job: str, rank: int | None, *, follow: bool) -> Iterator[admin_pb2.LogLines]:
        """Yield what the ranks of a job, or one of them, wrote; with ``follow``, what comes."""
        ...

    def inspect(self, job: str) -> Iterator[admin_pb2.NodeInspection]:
        """Yield what the ranks of a job do at this moment, a node after the other."""
        ...

    def slowness(self, job: str) -> admin_pb2.Slowness:
        """Return who of a job makes the others wait."""
        ...

    def fleet_ledger(self, period: str, periods: int) -> admin_pb2.FleetLedger:
        """Return where the time of all jobs went, in so many days, weeks or months."""
        ...

    def snapshots(self, job: str) -> admin_pb2.Snapshots:
        """Return every step of a job of which there is a copy, and which would be restored now."""
        ...

    def copies(self, job: str, step: int | None, node: str) -> Iterator[admin_pb2.CopyLine]:
        """Yield the single copies of a job, of one step or node where it is named."""
        ...

    def injections(self, node: str) -> admin_pb2.InjectionsReply:
        """Return what is and lately was injected into a node."""
        ...

    def maintenance(self, every: bool) -> admin_pb2.ListMaintenanceReply:
        """Return the maintenance windows that are open; with ``every``, those that are over too."""
        ...

    def controller(self) -> admin_pb2.ControllerDetail:
        """Return version and state of the controller itself."""
        ...


class Operator(Protocol):
    """Calls that only an operator may make; every method raises AdminError."""

    def isolate(self, node: str, reason: str) -> admin_pb2.NodeDetail:
        """Put the operator's claim on a node."""
        ...

    def remove_node(self, node: str, reason: str) -> admin_pb2.RemoveNodeReply:
        """Have a node forgotten that is gone for good."""
        ...

    def declare_lost(self, node: str, reason: str) -> admin_pb2.DeclareLostReply:
        """Have a silent node taken for lost."""
        ...

    def drain(self, node: str, reason: str) -> admin_pb2.DrainReply:
        """Have jobs leave a node at a step boundary."""
        ...

    def restart(self, job: str, at_step: int | None, reason: str) -> admin_pb2.RestartJobReply:
        """Restart a job after a step; None leaves the step to the controller."""
        ...

    def stop(self, job: str, at_step: int | None, reason: str) -> admin_pb2.StopJobReply:
        """End a job after a step; None leaves the step to the controller."""
        ...

    def cancel_restart(self, job: str, reason: str) -> admin_pb2.CancelRestartReply:
        """Take the planned restart or stop of a job back."""
        ...

    def add_maintenance(
        self, request: admin_pb2.AddMaintenanceRequest
    ) -> admin_pb2.MaintenanceWindow:
        """Plan a maintenance window; who asks is filled in."""
        ...

    def cancel_maintenance(self, window: str) -> admin_pb2.MaintenanceWindow:
        """Give a maintenance window up, or end it."""
        ...

    def release(self, node: str, reason: str, accepted: Sequence[str] = ()) -> admin_pb2.NodeDetail:
        """Remove the operator's claim from a node, in spite of these fatal conditions."""
        ...

    def pause(self, subject: str, reason: str) -> admin_pb2.AutomationReply:
        """Stop automation for a node, a job, or everything."""
        ...

    def resume(self, subject: str) -> admin_pb2.AutomationReply:
        """Let automation go on for a node, a job, or everything."""
        ...

    def forget(self, job: str) -> admin_pb2.ForgetJobReply:
        """Drop the memory that is kept of a job that has ended."""
        ...

    def inject(self, node: str, spec: str, seconds: float, reason: str) -> admin_pb2.InjectionLine:
        """Make a fault on a node on purpose, and return what its agent says."""
        ...

    def clear_injections(self, node: str, injection: str) -> admin_pb2.InjectionsReply:
        """End an injection, or all of a node for an empty id."""
        ...


class Admin(Reader, Operator, Protocol):
    """All calls to a controller: those of viewers, of operators, and any other by its stub."""

    def call(
        self,
        method: "Callable[[AdminStub], grpc.UnaryUnaryMultiCallable[Request, Reply]]",
        request: Request,
        about: str = "",
    ) -> Reply:
        """Make a call that only one command makes, named as in ``lambda stub: stub.GetNode``.

        ``about`` is the node or job that it names, for a hint where that is not known.
        Who asks is filled in. Raises AdminError.
        """
        ...

    def stream(
        self,
        method: "Callable[[AdminStub], grpc.UnaryStreamMultiCallable[Request, Reply]]",
        request: Request,
        about: str = "",
        *,
        endless: bool = False,
    ) -> Iterator[Reply]:
        """Make a call that is answered by many messages, and yield each as it comes.

        One that is ``endless`` has no deadline. For the rest, see `call`. Raises AdminError.
        """
        ...
