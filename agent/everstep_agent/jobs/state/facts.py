"""Job facts: what the agent knows of a job and must still know after its own restart. Values.

They are written by JobRecord alone.
"""

from dataclasses import dataclass, field

from everstep_agent.ipc.processes import ProcessIdentity
from everstep_agent.jobs.state.autonomous_restart_policy import Autonomy
from everstep_agent.jobs.state.lifecycle import JobState
from everstep_agent.jobs.state.plan import NO_PLAN, Plan
from everstep_agent.vault.memory.capacity import MemoryForecast
from everstep_agent.vault.snapshots.cadence import Cadence
from everstep_common.reports import Phase, Storage

# A user that is not known: -1 is no user of Linux.
NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherPlace:
    """User that may connect as the job's launcher; NOBODY: only the controller checks."""

    uid: int = NOBODY
    token_sha256: str = ""
    process: ProcessIdentity | None = None
    # A port that the launcher found free, for rank 0 of the next generation.
    free_port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOwner:
    """Whose snapshots are here, also when no launcher is."""

    uid: int = NOBODY
    token_sha256: str = ""
    # The secret by which other agents prove that they may send or fetch copies of this job.
    transfer_key: bytes = b""


@dataclass(frozen=True, slots=True)
class StopMarks:
    """Up to which generation a stop was ordered, and up to which one it is done."""

    ordered: int = 0
    completed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProcesses:
    """The processes of the newest generation here, and how far all of them have come."""

    phases: tuple[Phase, ...] = ()
    running: tuple[ProcessIdentity, ...] = ()
    # Ranks that were killed but are held in the kernel: those that this agent has identified, and
    # all, by the pids that the launcher gave when it stopped the newest generation.
    held: tuple[ProcessIdentity, ...] = ()
    abandoned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Outcome of a job that has ended here."""

    succeeded: bool = False
    # The job succeeded, but its last step is in no storage.
    unsaved: bool = False
    reason: str = ""

    @property
    def leaves_state(self) -> bool:
        """Return whether its memory is kept for a while, for a job that goes on from it."""
        return not self.succeeded or self.unsaved


@dataclass(frozen=True, slots=True)
class StorageAccess:
    """Folder or bucket for a job's steps, and the rights with which its files are opened."""

    storage: Storage | None = None
    gid: int = -1
    groups: tuple[int, ...] = ()
    umask: int = 0o077
    # Id of the folder that the job has used; "" before it is known, and for a bucket.
    folder_id: str = ""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One job on this node."""

    # Its name.
    job: str
    # Its id, by the controller's word; "" before that.
    job_id: str = ""
    # Id of the job with which the lineage of its state began: copies, and transfers of them, go by
    # it, so that a job that continues another one has what is left of it. "" before it is known.
    lineage_id: str = ""
    state: JobState = JobState.NEW
    plan: Plan = NO_PLAN
    # The controller's newest directive on the job's snapshots, encoded; empty before the first.
    directive: bytes = b""
    place: LauncherPlace = field(default_factory=LauncherPlace)
    owner: SnapshotOwner = field(default_factory=SnapshotOwner)
    stops: StopMarks = field(default_factory=StopMarks)
    processes: RankProcesses = field(default_factory=RankProcesses)
    ending: Ending = field(default_factory=Ending)
    storage: StorageAccess = field(default_factory=StorageAccess)
    # Which steps are snapshotted, with the rules that ranks behind the newest one follow.
    cadence: Cadence = field(default_factory=Cadence)
    autonomy: Autonomy = field(default_factory=Autonomy)
    # A rank here, or one whose state it was started from, may have made a snapshot. It is never
    # false again once it was true, but for a job that begins from nothing.
    snapshotted: bool = True
    # Memory that the launcher was told will be there for the ranks of its first generation here.
    promised: MemoryForecast | None = None

    @property
    def key(self) -> str:
        """Return what it is kept by here."""
        return job_key(self.job, self.job_id)

    @property
    def reported_as(self) -> str:
        """Return what it is called in reports: by its id, or its name as long as it has none."""
        return self.job_id or self.job

    @property
    def lineage(self) -> str:
        """Return what its copies are known by: their lineage's id, or its name before that."""
        return self.lineage_id or self.job

    @property
    def ended(self) -> bool:
        """Return whether the job is over here."""
        return self.state is JobState.ENDED

    @property
    def begun(self) -> bool:
        """Return whether anything of it is known here but a launcher that waits."""
        return bool(self.plan.generation or self.directive)

    @property
    def active(self) -> bool:
        """Return whether its newest generation is not stopped."""
        return self.plan.generation > self.stops.completed

    @property
    def idle(self) -> bool:
        """Return whether the job has ended here, or never began."""
        return self.ended or not self.begun

    @property
    def newest_generation(self) -> int:
        """Return the newest generation that was planned here or ordered to stop."""
        return max(self.plan.generation, self.stops.ordered)

    @property
    def stop_due(self) -> int:
        """Return the generation whose processes are to end; 0 when none is."""
        if self.stops.ordered > self.stops.completed:
            return self.stops.ordered
        ends = self.state in (JobState.STOPPING, JobState.RESTARTING)
        return self.plan.generation if ends else 0


def job_key(name: str, job_id: str) -> str:
    """Return what a job is kept by: its id, or before it has one its name, as no id can be."""
    return job_id or f"{name}/"
