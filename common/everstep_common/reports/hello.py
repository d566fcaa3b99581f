"""Hello: what an agent says of itself, its node and the jobs there when it opens its stream."""

from dataclasses import dataclass
from typing import Annotated

from everstep_common import quantities as q
from everstep_common.bounds import Integer, Items
from everstep_common.judging.findings import Finding
from everstep_common.stamp import Stamp

# More disks, interfaces or jobs than any node has: a list of them that is longer is hostile.
_MANY = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A mounted disk."""

    device: q.Line
    mount: q.Evidence
    filesystem: q.Line
    size_bytes: q.SizeBytes
    # What anybody may use of it.
    free_bytes: q.SizeBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A network interface or an InfiniBand port."""

    # "eth0", or "mlx5_0/1" for port 1 of an InfiniBand device.
    name: q.Line
    # "ethernet", "infiniband", "roce", "bond", "ipoib", "loopback" or "virtual".
    kind: q.Line
    up: bool
    # 0 when unknown.
    speed_bits_per_s: Annotated[int, Integer(0, q.NUMBER_MAX)]
    # Hardware address or port GUID.
    address: q.Line
    pci_address: q.Line = ""
    # NUMA node that it is near to; None when the firmware does not say.
    numa_node: q.Count | None = None
    firmware: q.Line = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One accelerator."""

    # "GPU-…" or another id that survives a reboot.
    uuid: q.Line
    name: q.Line
    # "nvidia", "amd" …
    vendor: q.Line
    pci_address: q.Line
    memory_bytes: q.SizeBytes
    driver: q.Line
    numa_node: q.Count | None = None
    # The interfaces nearest to it in the PCI tree, and how near, as in `nvidia-smi topo`: "PIX",
    # "PXB", "PHB", "NODE" or "SYS".
    nearest_interfaces: Annotated[tuple[q.Line, ...], Items(_MANY)] = ()
    nearest_distance: q.Line = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Hardware of a node, as facts; judged by nobody here."""

    kernel: q.Line = ""
    cpu_model: q.Line = ""
    # Logical CPUs.
    cpu_count: q.Count = 0
    memory_bytes: q.SizeBytes = 0
    disks: Annotated[tuple[Disk, ...], Items(_MANY)] = ()
    interfaces: Annotated[tuple[Interface, ...], Items(_MANY)] = ()
    accelerators: Annotated[tuple[Accelerator, ...], Items(_MANY)] = ()
    # Sentences on what could not be read and why.
    notes: Annotated[tuple[q.Evidence, ...], Items(_MANY)] = ()


@dataclass(frozen=True, slots=True)
class RanksWithoutSnapshot:
    """Ranks of a generation that began without a snapshot, of which none here has made one since.

    Nor did a rank of a generation before it here.
    """

    generation: q.Generation
    # How many of its ranks are here, and on all nodes.
    ranks: q.Ranks
    world_size: q.Ranks
    # A controller has ordered its stop: a newer generation may have begun elsewhere.
    stop_ordered: bool = False


@dataclass(frozen=True, slots=True)
class JobOnNode:
    """State of one job on a node, as its agent knows it."""

    job: q.JobName
    # The newest that the agent has seen of it.
    generation: q.Generation
    # Whether a launcher of it is connected.
    launcher: bool
    # The plan that the job's newest generation comes from: another one where the agent began that
    # itself; 0 when there is none.
    planned_generation: q.Generation = 0
    # Its id, and that of the job with which the lineage of its state began; "": not known yet.
    job_id: q.JobId = ""
    lineage_id: q.JobId = ""
    # How many ranks its newest generation has, on all nodes; 0 when that is not known.
    world_size: q.Ranks = 0
    # The newest generation that was planned here, if no snapshot of the job was ever made here;
    # None: there was one, or nobody knows.
    without_snapshot: RanksWithoutSnapshot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """A job that a controller has ended, as an agent remembers it for a day.

    It is known by its id: no other job of its name is meant.
    """

    job: q.JobName
    job_id: q.JobId
    # The newest by then of which the agent or who told it the end knew.
    generation: q.Generation
    # The controller's term in which it was told so.
    term: Annotated[int, Integer(0, q.NUMBER_MAX)]
    succeeded: bool
    # It succeeded, and its last step is in no storage.
    unsaved: bool = False
    reason: q.Line = ""


# As many as an agent remembers, and more.
_ENDED_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """An agent opens its stream: who it is, and what its node has."""

    # Must be the certificate's subject where TLS is on; ends up in file names and metric labels.
    node: q.HostName
    agent_version: q.Word
    # Scope of the sequence numbers of this agent's records.
    outbox: q.Key
    # Sequence of the oldest record that is not acknowledged yet; 0 when there is none.
    first_unacknowledged: Annotated[int, Integer(0, q.NUMBER_MAX)] = 0
    # Highest controller term that this agent has ever seen.
    highest_term: Annotated[int, Integer(0, q.NUMBER_MAX)]
    # When this message was made.
    stamp: Stamp
    inventory: Inventory = Inventory()
    # Failure domain (rack, leaf switch …); "" when unknown.
    domain: q.Line = ""
    # host:port of the bulk listener that serves replicas, and of the UDP responder.
    bulk_address: q.Address = ""
    liveness_address: q.Address = ""
    # Jobs that have a launcher or memory on this node.
    jobs: Annotated[tuple[JobOnNode, ...], Items(_MANY)] = ()
    # Name or address under which trainers of other nodes reach this node.
    host: q.Address
    # Findings that are open now, so that one that cleared while nobody listened is cleared too.
    open_findings: Annotated[tuple[Finding, ...], Items(_MANY)] = ()
    # Since when, in the same order; of those that have none, since now.
    findings_since: Annotated[tuple[Stamp, ...], Items(_MANY)] = ()
    # The cluster that this agent belongs to; "" before its first Welcome.
    cluster_id: q.Title = ""
    # The machine that it runs on, as the controller names its own; "" where it has no id.
    machine: q.Title = ""
    # Jobs that have ended within a day, as this agent was told.
    ended_jobs: Annotated[tuple[EndedJob, ...], Items(_ENDED_MAX)] = ()
    # This agent takes lists of revoked certificates.
    takes_revoked: bool = False
