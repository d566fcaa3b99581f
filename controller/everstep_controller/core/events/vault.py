"""Events of the vault: what the core has to know about a job's snapshots."""

from dataclasses import dataclass

from everstep_common.orders import ShardSource
from everstep_common.reports import StoredStep
from everstep_controller.core.model.snapshot_costs import Cadence


@dataclass(frozen=True, slots=True)
class StepRecoverable:
    """A step is recoverable without any one node, and no row of progress has said so.

    Told while steps are slow or none is made, and at once when a planned restart waits for it.
    """

    job: str
    generation: int
    step: int


@dataclass(frozen=True, slots=True)
class KeeperChosen:
    """A node that waits as a spare is to keep the replicas of a job that runs on one node."""

    job: str
    node: str


@dataclass(frozen=True, slots=True)
class CadenceChosen:
    """From now on other steps of a job are snapshotted."""

    job: str
    cadence: Cadence


@dataclass(frozen=True, slots=True)
class LayoutLearned:
    """All parts of a generation's state, told when all its ranks have committed a step."""

    job: str
    generation: int
    layouts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryStepChosen:
    """The catalogue's answer to ChooseRecoveryStep.

    ``step`` is None when the job has no snapshot; ``lost`` is a sentence when it had some and none
    can be restored.
    """

    job: str
    generation: int
    step: int | None
    sources: tuple[ShardSource, ...] = ()
    lost: str = ""
    reason: str = ""
    # Generation that made the step; 0 where there is no step.
    step_generation: int = 0
    # The step as storage has it; None where storage has none of it.
    stored: StoredStep | None = None
    # Best tier that has the whole step; empty where none has.
    tier: str = ""


@dataclass(frozen=True, slots=True)
class BreakpointReached:
    """The last step of a job that shall end is in storage, or will not come there."""

    job: str
    generation: int
    message: str
    # The step will not come to storage.
    missed: bool = False


VaultEvent = (
    StepRecoverable
    | KeeperChosen
    | CadenceChosen
    | LayoutLearned
    | RecoveryStepChosen
    | BreakpointReached
)
