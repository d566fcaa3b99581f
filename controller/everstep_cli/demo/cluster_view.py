"""View of the demo's cluster: nodes, job and events at one instant, as the controller has them."""

from dataclasses import dataclass

from everstep_cli.client.admin import Admin, NameNotFoundError, list_nodes
from everstep_proto.generated import admin_pb2

# The demo makes a few dozen events.
_EVENTS = 1000


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Nodes, the story so far, and once there is a job, that and its snapshots."""

    nodes: tuple[admin_pb2.NodeSummary, ...] = ()
    job: admin_pb2.JobDetail | None = None
    events: tuple[admin_pb2.Event, ...] = ()
    snapshots: admin_pb2.Snapshots | None = None

    def node(self, name: str) -> admin_pb2.NodeSummary:
        """Return a node; an empty one when the controller does not know it yet."""
        known = (node for node in self.nodes if node.node == name)
        return next(known, admin_pb2.NodeSummary(node=name, state="absent"))

    @property
    def state(self) -> str:
        """Return the job's state."""
        return self.job.summary.state if self.job else "absent"

    @property
    def members(self) -> tuple[str, ...]:
        """Return the job's nodes in rank order."""
        return tuple(self.job.summary.members) if self.job else ()

    @property
    def generation(self) -> int:
        """Return the job's generation."""
        return self.job.summary.generation if self.job else 0

    @property
    def step(self) -> int:
        """Return the job's last step; -1 before the first."""
        has_step = self.job is not None and self.job.summary.has_step
        return self.job.summary.step if self.job and has_step else -1


def observe(admin: Admin, job: str) -> ClusterView:
    """Ask the controller. Raises AdminError when it cannot be asked."""
    nodes = tuple(list_nodes(admin).nodes)
    told = admin_pb2.WatchEventsRequest(limit=_EVENTS)
    events = tuple(admin.stream(lambda stub: stub.WatchEvents, told))
    sheet, table = admin_pb2.GetJobRequest(job=job), admin_pb2.GetSnapshotsRequest(job=job)
    try:
        return ClusterView(
            nodes,
            admin.call(lambda stub: stub.GetJob, sheet, job),
            events,
            admin.call(lambda stub: stub.GetSnapshots, table, job),
        )
    except NameNotFoundError:
        return ClusterView(nodes, None, events)
