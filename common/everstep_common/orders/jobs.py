"""Orders about a job or its node: each is done once, however often it is sent."""

from dataclasses import dataclass
from typing import Annotated

from everstep_common import quantities as q
from everstep_common.bounds import Integer, Items
from everstep_common.reports import BranchSteps, DataRanges, StoredStep
from everstep_common.reports.nodes import PAIR_ROUNDS_MAX

# As many copies as a job of 100,000 ranks has, each on two nodes, with room.
SOURCES_MAX = 1_000_000


# Not frozen, only hashed as if: one plan makes 33,000, each in a third of the time.
@dataclass(slots=True, unsafe_hash=True)
class ShardSource:
    """One verified copy that holds some part of the state to restore. Never changed."""

    node: q.NodeName
    # host:port of the node's bulk listener.
    bulk_address: q.Address
    # Who wrote it, after which step.
    generation: q.Generation
    rank: q.Rank
    step: q.Step
    root_hash: q.Hash
    size_bytes: q.SizeBytes
    # The part of the state that it is; "": a part of its own.
    layout: q.HashOrNone = ""
    # A file in the node's storage, not memory.
    on_disk: bool = False


ShardSources = Annotated[tuple[ShardSource, ...], Items(SOURCES_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOrder:
    """Fields of every order: its id, the same whenever it is sent; its node; one sentence why.

    An agent, which gets only its own, reads them with no node.
    """

    id: q.Key
    node: q.NodeName
    reason: q.Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class StartGeneration(NodeOrder):
    """Start this node's ranks of a generation: who runs where, and what is restored."""

    job: q.JobName
    generation: q.Generation
    # Index of this node among the members, and how many they are.
    node_rank: q.Nodes
    node_count: q.Nodes
    # Global rank of this node's first process, and how many processes there are: here, in all.
    first_rank: q.Rank
    processes: q.RanksOfNode
    world_size: q.Ranks
    # Where rank 0 listens.
    master_address: q.Address
    master_port: q.Port
    # Continue after this step; None: from the start.
    restore_step: q.Step | None
    # Where its copies are, and the key for fetching them; added when the order is sent, for it is
    # too much for every order in the journal.
    sources: ShardSources = ()
    transfer_key: q.TransferKey = b""
    # The same state in the job's storage folder, where it is whole.
    stored: StoredStep | None = None
    # Ranges of training data that the job skips.
    skipped: DataRanges = ()
    # How often the node may restart the job on its own while the controller is away, each time
    # under the next number after this generation's.
    own_restarts: q.Count = 0
    # Id of the job, whose name is ``job``; and of the one with which its state's lineage began.
    job_id: q.JobId = ""
    lineage_id: q.JobId = ""
    # Warm standbys are not used: the script may have changed since they were made.
    renew: bool = False
    # The last steps of the generations that the state to restore came from, oldest first: the last
    # one is that state. Empty where none is restored.
    branch: BranchSteps = ()

    @property
    def ranks(self) -> range:
        """Return the ranks of this node."""
        return range(self.first_rank, self.first_rank + self.processes)

    @property
    def restores(self) -> bool:
        """Return whether there is a state to restore."""
        return self.restore_step is not None

    @property
    def restored_generation(self) -> int:
        """Return the generation that made the state to restore; 0 when none is restored."""
        if not self.restores:
            return 0
        if self.sources:
            return self.sources[0].generation
        return self.stored.generation if self.stored else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopGeneration(NodeOrder):
    """Stop the processes of a generation and of older ones."""

    job: q.JobName
    generation: q.Generation
    # How long processes may take after SIGTERM before SIGKILL; 0 kills at once.
    grace_ns: q.DurationNs
    job_id: q.JobId = ""
    lineage_id: q.JobId = ""
    # It ended because ranks gave up waiting: its launchers look at the others before they are
    # killed, which takes two seconds at most.
    look: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EndJob(NodeOrder):
    """End the job's launcher here, and free (succeeded) or keep its memory."""

    job: q.JobName
    succeeded: bool
    job_id: q.JobId = ""
    # The last step did not come to storage, so nodes keep the memory though the job succeeded.
    unsaved: bool = False
    # The newest generation, which a spare has not seen; 0: not known.
    generation: q.Generation = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetJob(NodeOrder):
    """Drop the memory that is kept of a job that has ended."""

    job: q.JobName
    job_id: q.JobId = ""
    lineage_id: q.JobId = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepJob(NodeOrder):
    """Keep the memory of a lineage, whose last job has ended: this job goes on from it."""

    job: q.JobName
    job_id: q.JobId = ""
    lineage_id: q.JobId = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseLauncher(NodeOrder):
    """Tell a launcher that it cannot take part, and why."""

    job: q.JobName


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldLauncher(NodeOrder):
    """Tell a launcher that it waits, and for what."""

    job: q.JobName
    # Id of the job in which it waits.
    job_id: q.JobId = ""
    lineage_id: q.JobId = ""
    # It waits as a spare: the job goes on without it.
    spare: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCheck(NodeOrder):
    """Check whether the node may take ranks; CheckFinished answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPairTest(NodeOrder):
    """Do fixed work and time it, where no ranks are; PairTested answers."""

    rounds: Annotated[int, Integer(1, PAIR_ROUNDS_MAX)]
    deadline_ns: q.DurationNs


@dataclass(frozen=True, slots=True, kw_only=True)
class Inject(NodeOrder):
    """Make a fault on purpose, for a while; InjectionChanged answers. Its id is the injection's."""

    # What, as the operator wrote it: "xid:79@0000:3b:00.0".
    spec: q.Evidence
    duration_ns: q.DurationNs


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearInjection(NodeOrder):
    """End a fault that was made on purpose; InjectionChanged answers."""

    injection: q.Key


JobOrder = (
    StartGeneration | StopGeneration | EndJob | ForgetJob | KeepJob | RefuseLauncher | HoldLauncher
)
Order = JobOrder | RunCheck | RunPairTest | Inject | ClearInjection
