"""Job facts: what the agent knows of a job and must still know after its own restart. Values.

They are written by JobRecord alone.
"""

import hashlib
from dataclasses import dataclass, field

from everstep_agent.ipc.processes import ProcessIdentity
from everstep_agent.jobs.state.autonomous_restart_policy import Autonomy
from everstep_agent.jobs.state.lifecycle import JobState
from everstep_agent.jobs.state.plan import NO_PLAN, Plan
from everstep_agent.vault.memory.capacity import MemoryForecast
from everstep_agent.vault.snapshots.cadence import Cadence
from everstep_common.reports import Phase
from everstep_common.trainer_messages import Storage

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
    # The next job of the same name continues from the snapshots that are kept here.
    wanted: bool = False

    @property
    def leaves_state(self) -> bool:
        """Return whether its memory is kept, for a while or for the next job of its name."""
        return not self.succeeded or self.unsaved


@dataclass(frozen=True, slots=True)
class StorageAccess:
    """Folder or bucket for a job's steps, and the rights with which its files are opened."""

    storage: Storage | None = None
    gid: int = -1
    groups: tuple[int, ...] = ()
    umask: int = 0o077


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One job on this node."""

    # Its name.
    job: str
    # Id of the job that the launcher takes part in, by the controller's word; "" before that.
    job_id: str = ""
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
    # Memory that the launcher was told will be there for the ranks of its first generation here.
    promised: MemoryForecast | None = None

    @property
    def ended(self) -> bool:
        """Return whether the job is over here, and no next one of its name has joined."""
        return self.state is JobState.ENDED

    @property
    def superseded(self) -> bool:
        """Return whether it has ended, and the next job of its name has joined and not begun."""
        return self.state is JobState.SUPERSEDED

    @property
    def active(self) -> bool:
        """Return whether its newest generation is not stopped."""
        return self.plan.generation > self.stops.completed

    @property
    def continues(self) -> bool:
        """Return whether the next generation goes on from one of the same job here."""
        return bool(self.plan.generation) and not self.superseded

    @property
    def idle(self) -> bool:
        """Return whether the job has ended here, or never began."""
        return self.ended or not (self.plan.generation or self.directive)

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


def token_hash(token: str) -> str:
    """Return what is kept and sent of a job token."""
    return hashlib.sha256(token.encode()).hexdigest()
