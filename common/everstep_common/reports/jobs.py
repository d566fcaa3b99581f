"""Job reports: what a job's launcher and its ranks say of it, each fact once.

The job itself is named beside the report (protobuf ``Record.job``), for a connection has one job.
"""

import typing
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from everstep_common import quantities as q
from everstep_common.bounds import Integer, Items
from everstep_common.rank_messages import DataRange, SentByRank

DataRanges = Annotated[tuple[DataRange, ...], Items(q.RANGES_MAX)]


@dataclass(frozen=True, slots=True)
class Storage:
    """Place and rhythm of storing steps: a folder or ``s3://bucket/prefix``."""

    path: q.Place
    # Persist after so many steps, after so much time; 0: not by that measure.
    every_steps: q.Step = 0
    every_ns: q.DurationNs = 0
    # How many complete steps are kept in storage.
    keep: Annotated[int, Integer(2, 10_000, option="--persist-keep")] = 2


@dataclass(frozen=True, slots=True)
class BranchStep:
    """The last step of a generation that a job's state came from."""

    generation: q.ToldGeneration
    step: q.ToldStep


# As many as the controller keeps of a branch, and the newest one.
BranchSteps = Annotated[tuple[BranchStep, ...], Items(1025)]


@dataclass(frozen=True, slots=True)
class StoredStep:
    """A whole step in a job's storage folder: every rank's file, and a manifest of them all."""

    generation: q.ToldGeneration
    step: q.ToldStep
    world_size: Annotated[int, Integer(1, q.RANKS_MAX)]
    # xxh3-128 of the manifest, which has the hash of every file; "" in an order to write it.
    manifest_hash: q.HashOrNone
    size_bytes: q.SizeBytes
    # Data that the job had left out by then, in order and apart.
    skipped: DataRanges = ()

    @property
    def key(self) -> tuple[int, int]:
        """Return what the state is called: its generation and its step."""
        return (self.generation, self.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """Request of a launcher: how large its job is, what it starts, and what runs of it."""

    nodes_min: Annotated[int, Integer(1, q.NODES_MAX, option="--nnodes")]
    nodes_max: Annotated[int, Integer(1, q.NODES_MAX, option="--nnodes")]
    processes_per_node: Annotated[int, Integer(1, q.RANKS_OF_NODE_MAX, option="--nproc-per-node")]
    # Without a spare: go on with fewer nodes, not wait for capacity.
    reform: bool
    # Restarts without progress before the job is given up.
    restarts_max: Annotated[int, Integer(0, q.COUNT_MAX, option="--max-restarts")]
    # A TCP port that is free here, for the rendezvous of the next generation.
    free_port: q.Port
    # Generation whose processes this launcher has running; 0: none.
    running_generation: q.ToldGeneration = 0
    storage: Storage | None = None
    # Least and most steps from one snapshot to the next; 0 leaves it to the controller.
    snapshot_every_min: Annotated[int, Integer(0, q.TOLD_MAX, option="--snapshot-every")] = 0
    snapshot_every_max: Annotated[int, Integer(0, q.TOLD_MAX, option="--snapshot-every")] = 0
    # Begin anew, whatever there is of a job of this name before.
    fresh: bool = False
    # Go on from what storage has, though another job has brought it there.
    continues: bool = False
    # Id of the job that it is of, once it was told; "" before.
    job_id: q.JobId = ""
    # How many nodes together hold one copy of the model.
    replica_nodes: Annotated[int, Integer(1, q.NODES_MAX, option="--nodes-per-replica")] = 1
    # The program that the launcher starts, as a title that differs for other programs; "": unknown.
    program: q.Title = ""
    # Whose time it is, as its scheduler or its user names queue and account; "": no one's.
    queue: q.Title = ""
    account: q.Title = ""

    def problems(self) -> list[str]:
        """Say what is wrong with the numbers together, and which option changes it."""
        if self.nodes_min > self.nodes_max:
            return [f"{self._nodes}: expected MIN:MAX from 1 up, MIN not above MAX"]
        if self.nodes_min % self.replica_nodes or self.nodes_max % self.replica_nodes:
            told = f"--nodes-per-replica {self.replica_nodes}"
            return [f"{told}: expected a number that divides both ends of {self._nodes}"]
        if self.nodes_max * self.processes_per_node > q.RANKS_MAX:
            told = f"--nproc-per-node {self.processes_per_node} with {self._nodes}"
            return [f"{told}: expected at most {q.RANKS_MAX} ranks in all"]
        if self.job_id and int(self.job_id.rpartition("-")[2]) > q.TOLD_MAX:
            return [f"job id {self.job_id}: expected a number up to {q.TOLD_MAX} at its end"]
        return self._snapshot_problems()

    def _snapshot_problems(self) -> list[str]:
        least, most = self.snapshot_every_min, self.snapshot_every_max
        if not most or least <= most:
            return []
        return [f"--snapshot-every {least}:{most}: expected MIN:MAX, MIN not above MAX"]

    @property
    def _nodes(self) -> str:
        return f"--nnodes {self.nodes_min}:{self.nodes_max}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherJoined(JobRequest):
    """A launcher asks to take part in a job, with what its agent adds of itself."""

    # SHA-256 of the job's token, and user of the launcher by the credentials of its socket.
    token_sha256: q.TokenHash
    uid: q.Uid
    # The newest complete step in storage on the branch of its newest generation, and the number of
    # the newest one that it has seen.
    latest: StoredStep | None = None
    stored_generation: q.ToldGeneration = 0
    # The last steps of the generations before that of ``latest`` on its branch, oldest first.
    stored_branch: BranchSteps = ()
    # The job whose newest generation that is, and the cluster that gave it its id; "": not known.
    stored_job: q.StoredId = ""
    stored_cluster: q.StoredId = ""
    # Its user, for a controller that has forgotten it; None: not known.
    stored_uid: q.Uid | None = None
    # Why it is not known which step there is the newest of the job, though there is something.
    stored_doubt: q.Evidence = ""
    # Id of the job with which the lineage of its state began, for a controller that has forgotten
    # it; "": not known.
    lineage_id: q.JobId = ""
    # Data that the running generation leaves out, for a controller that has forgotten it.
    skipped: DataRanges = ()

    def problems(self) -> list[str]:
        """Say what is wrong with the request, or with where the job is said to have got to."""
        if self.latest is not None and not self.latest.manifest_hash:
            return ["the latest step in storage without the hash of its manifest"]
        return JobRequest.problems(self)


@dataclass(frozen=True, slots=True)
class LauncherLeft:
    """A launcher and all its processes are gone, or go."""

    reason: q.Line
    # Its user ended it (Ctrl-C, SIGTERM), and with it the job.
    by_user: bool


@dataclass(frozen=True, slots=True)
class EndAsked:
    """A launcher asks for its job's end, and waits a while for its last step to be saved."""

    # "SIGTERM": whoever started the launcher has sent it.
    reason: q.Line
    # It and its processes are gone so long after that, whatever was saved.
    grace_ns: q.DurationNs


class Phase(Enum):
    """Phase that a generation's processes have reached on one node, in this order."""

    STARTED = "started"
    ATTACHED = "attached"
    RESTORED = "restored"


@dataclass(frozen=True, slots=True)
class PhaseReached:
    """All ranks of a node have reached a phase, the last one of them at this time."""

    generation: q.Generation
    phase: Phase
    at_boot_ns: q.BootNs = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExited:
    """A training process ended by an error or a signal before its generation did."""

    generation: q.Generation
    rank: q.Rank
    # Meaningful when signal is 0.
    exit_code: q.ExitCode
    signal: q.Signal
    # Last line of its standard error.
    last_line: q.Line
    at_boot_ns: q.BootNs = 0
    # The kind of its failure, as classified by `everstep_common.failures`; its last exception.
    kind: q.Word = ""
    exception: q.Line = ""
    core_dumped: bool = False
    # Last step that it completed; None when it told of none.
    step: q.ToldStep | None = None
    # Where its core dump is, or the command that shows it, where the kernel's settings tell.
    core_file: q.Evidence = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartedHere:
    """An agent began a generation itself, while the controller was away; see own_restarts."""

    # The generation that failed, and the one that was begun.
    after_generation: q.Generation
    generation: q.Generation
    # What it restores, and which generation made that; None and 0: it starts from the beginning.
    restore_step: q.Step | None = None
    restore_generation: q.Generation = 0
    # When the agent decided to stop the one that failed, and when it began the new one.
    decided_boot_ns: q.BootNs
    at_boot_ns: q.BootNs
    reason: q.Line

    def problems(self) -> list[str]:
        """Say what is wrong with the numbers together."""
        if self.generation > self.after_generation:
            return []
        return [f"generation {self.generation} cannot follow {self.after_generation}"]


@dataclass(frozen=True, slots=True)
class GenerationStopped:
    """No process of the generation (or an older one) is left on the node."""

    generation: q.Generation
    # A TCP port that is free now, for the rendezvous of the next generation.
    free_port: q.Port
    at_boot_ns: q.BootNs = 0
    # Killed, but held in the kernel by a device or a file system: nobody waits for these.
    abandoned: q.Pids = ()
    # Their memory was still in use, long after the last process that had it was gone.
    held_devices: q.Devices = ()


@dataclass(frozen=True, slots=True)
class GenerationFinished:
    """All ranks of the node ended with exit code 0."""

    generation: q.Generation
    at_boot_ns: q.BootNs = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksStandStill:
    """No rank of a node has moved for longer than it ever does; told again after `RanksGoOn`."""

    generation: q.Generation
    # Newest step that all its ranks completed; None when they told of none.
    step: q.ToldStep | None = None
    # Newest step of any rank here, or newest operation that one has enqueued or completed.
    since_boot_ns: q.BootNs
    # For how long nothing may happen here, as was learned of this generation.
    usual_ns: q.DurationNs
    # Why operations say nothing here, and steps alone decided; "" where they do.
    blind: q.Line = ""
    # When that was seen; 0: an agent of an older version does not say.
    looked_boot_ns: q.BootNs = 0
    # Little was learned, and of no step: it counts only where the job has made some by now.
    young: bool = False


@dataclass(frozen=True, slots=True)
class RanksGoOn:
    """A rank of a node that stood still has moved again, or has declared a pause."""

    generation: q.Generation
    at_boot_ns: q.BootNs = 0


class PauseKind(Enum):
    """What a rank does between steps that is none, as its script says."""

    EVALUATION = "evaluation"
    # Of a checkpoint of its own, which training waits for.
    SAVE = "save"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class StepPause:
    """Time within a step in which ranks did what is no step, as their script declared."""

    step: q.ToldStep
    kind: PauseKind
    lasted_ns: q.DurationNs


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsCompleted:
    """Consecutive steps that all ranks of a node completed."""

    generation: q.Generation
    first_step: q.ToldStep
    # Of each step: when the slowest local rank had completed it, and how long training stood still
    # for its snapshot (largest of the local ranks). A second of very short steps, at most.
    end_boot_ns: Annotated[tuple[q.BootNs, ...], Items(100_000)]
    stall_ns: Annotated[tuple[q.DurationNs, ...], Items(100_000)]
    # Steps that were not saved since the generation began, for whatever reason.
    snapshots_skipped: Annotated[int, Integer(0, q.NUMBER_MAX)] = 0
    # Read from the output of one rank, and true for the whole job: no other node reports it.
    of_job: bool = False
    # What was declared to be no step (largest of the local ranks); most steps have none.
    pauses: Annotated[tuple[StepPause, ...], Items(10_000)] = ()

    def problems(self) -> list[str]:
        """Say what is wrong with the lists."""
        if len(self.end_boot_ns) != len(self.stall_ns):
            return [f"{len(self.end_boot_ns)} steps with {len(self.stall_ns)} stalls"]
        return []


JobReport = (
    LauncherJoined
    | LauncherLeft
    | EndAsked
    | PhaseReached
    | RankExited
    | SentByRank
    | RestartedHere
    | GenerationStopped
    | GenerationFinished
    | RanksStandStill
    | RanksGoOn
    | StepsCompleted
)
JOB_REPORTS: tuple[type, ...] = typing.get_args(JobReport)
