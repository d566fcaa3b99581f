"""Snapshots as values: the branch of a job's states, copies of them, their cadence and cost."""

from dataclasses import dataclass, field
from statistics import median_low

from everstep_common.orders import ShardSource
from everstep_common.reports import StoredStep


@dataclass(frozen=True, slots=True)
class BranchPoint:
    """Steps up to ``through_step`` of a generation belong to the job's current branch.

    None means that the generation is the newest one: all its steps do. A step is whole when copies
    have all ``layouts``, or when every rank of the world has one.
    """

    generation: int
    through_step: int | None
    world_size: int
    layouts: tuple[str, ...] = ()

    def has(self, generation: int, step: int) -> bool:
        """Return whether a step is on the branch here."""
        within = self.through_step is None or step <= self.through_step
        return generation == self.generation and within


# Generation and step: what a state is called.
StepKey = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryStepChosen:
    """The catalogue's answer to ChooseRecoveryStep: an event, kept until the job is reconciled.

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
class Predecessor:
    """Predecessor of a job: an earlier one of its name, whose state it continues."""

    job_id: str
    ended_ns: int
    # "failed", as in: the job that failed.
    how: str


# So many of the newest decide: enough to outlast a slow one, few enough to follow a change within a
# quarter of an hour where the limit on the gap (a minute) sets the cadence.
COSTS_KEPT = 31


@dataclass(frozen=True, slots=True)
class Cadence:
    """A snapshot at every step that is a multiple of ``every``, from ``start`` on; and why."""

    every: int = 1
    start: int = 0
    reason: str = "every step is snapshotted until its cost is known"
    changed_ns: int = 0
    # How often more snapshots were tried again.
    returns: int = 0
    # Set while ranks that are out of phase come together at ``start``: how often it is after that.
    usual_every: int = 0
    # How long ranks were to train from one snapshot to the next; 0: that was not what decided.
    gap_ns: int = 0
    # More are taken than was decided, because steps took longer: fewer again are tried later.
    corrected: bool = False

    def names(self, step: int) -> bool:
        """Return whether a step is to be snapshotted; before ``start``, nobody knows."""
        return step >= self.start and step % self.every == 0


@dataclass(slots=True)
class SnapshotCosts:
    """Stalls of training by the newest snapshots, each for itself; nanoseconds.

    Steps that are not snapshotted say nothing here: not to save costs a microsecond or two.
    """

    newest_ns: list[int] = field(default_factory=list)
    # The step of the last of them.
    step: int = -1
    # How long the newest step that was stored was on its way; 0: not known.
    storing_ns: int = 0

    def record(self, cadence: Cadence, step: int, stall_ns: int) -> None:
        """Take what a step stood still, if that was for a snapshot."""
        if not stall_ns:
            return
        if cadence.names(step):
            self.newest_ns.append(stall_ns)
            self.step = step
            del self.newest_ns[:-COSTS_KEPT]
        elif self.newest_ns and step == self.step + 1:
            # The rest of a copy that was overlapped with this step.
            self.newest_ns[-1] += stall_ns

    @property
    def usual_ns(self) -> int:
        """Return what one snapshot costs as a rule; 0 while none is known."""
        return median_low(self.newest_ns) if self.newest_ns else 0
