"""Actions: what the core orders the shell to do; each has an id, so that none is done twice."""

from dataclasses import dataclass

from everstep_common.reports import DataRange, StoredStep
from everstep_controller.core.model.isolation import WantedIsolation
from everstep_controller.core.model.snapshots import BranchPoint, StepKey


@dataclass(frozen=True, slots=True, kw_only=True)
class StartGeneration:
    """Order a node to start its ranks of a generation.

    Where the state is that they restore is in the job's record: it is too much for every order.
    """

    id: str
    node: str
    reason: str
    job: str
    generation: int
    node_rank: int
    node_count: int
    first_rank: int
    processes: int
    world_size: int
    master_address: str
    master_port: int
    restore_step: int | None
    stored: StoredStep | None = None
    # Ranges of training data that the job skips.
    skipped: tuple[DataRange, ...] = ()
    # How often the node may restart the job on its own while the controller is away.
    own_restarts: int = 0
    # Id of the job; ``job`` is its name.
    job_id: str = ""
    # Warm standbys are not used: the script may have changed since they were made.
    renew: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StopGeneration:
    """Order a node to stop the processes of a generation and of older ones."""

    id: str
    node: str
    reason: str
    job: str
    generation: int
    grace_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndJob:
    """Order a node to end its launcher and to free (succeeded) or keep the job's memory."""

    id: str
    node: str
    reason: str
    job: str
    succeeded: bool
    # Only a launcher of the job with this id is meant; "": whichever is there.
    job_id: str = ""
    # The last step did not come to storage, so nodes keep the memory though the job succeeded.
    unsaved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetJob:
    """Order a node to drop the memory that it keeps of a job that has ended."""

    id: str
    node: str
    reason: str
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepJob:
    """Order a node to keep the memory of a job that has ended: the next one goes on from it."""

    id: str
    node: str
    reason: str
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseLauncher:
    """Tell a launcher that it cannot take part, and why."""

    id: str
    node: str
    reason: str
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldLauncher:
    """Tell a launcher that it waits, and for what."""

    id: str
    node: str
    reason: str
    job: str
    # Id of the job in which it waits.
    job_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCheck:
    """Order a node to check whether it may take ranks."""

    id: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inject:
    """Order a node to make a fault on purpose."""

    id: str
    node: str
    reason: str
    spec: str
    duration_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearInjection:
    """Order a node to end a fault that was made on purpose."""

    id: str
    node: str
    reason: str
    injection: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmSilence:
    """Ask a node whether a peer is alive."""

    id: str
    node: str
    reason: str
    peer: str
    peer_address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyIsolation:
    """Have a scheduler withhold or free nodes, through its driver; DriverReported answers."""

    id: str
    driver: str
    reason: str
    wanted: tuple[WantedIsolation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadIsolation:
    """Have read through a driver what its scheduler withholds; DriverReported answers."""

    id: str
    driver: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChooseRecoveryStep:
    """Ask the catalogue for the newest step of the branch that can be restored.

    It answers with RecoveryStepChosen, after every holder has settled ``settled_generation``, and
    every one of ``others`` has reported its copies since the controller started, or is lost.
    """

    id: str
    job: str
    generation: int
    settled_generation: int
    holders: tuple[str, ...]
    branch: tuple[BranchPoint, ...]
    # The job has committed a snapshot before: an empty answer must say what is lost.
    expected: bool
    reason: str
    # Nodes that ran older generations and may hold copies of them.
    others: tuple[str, ...] = ()
    # Steps in storage that launchers told of, and states that the job crashed from again and again.
    stored: tuple[StoredStep, ...] = ()
    avoided: tuple[StepKey, ...] = ()
    # Copies of this generation and older ones belong to another job, which had the name before.
    foreign_generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Report TimerDue at or after a time; replaces the timer of the same name."""

    id: str
    timer: str
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """Tell people: the event list, the log, the metric."""

    id: str
    subject: str
    reason: str
    message: str


Order = (
    StartGeneration
    | StopGeneration
    | EndJob
    | ForgetJob
    | KeepJob
    | RefuseLauncher
    | HoldLauncher
    | RunCheck
    | Inject
    | ClearInjection
)
Action = (
    Order
    | ConfirmSilence
    | ApplyIsolation
    | ReadIsolation
    | ChooseRecoveryStep
    | SetTimer
    | Announce
)
