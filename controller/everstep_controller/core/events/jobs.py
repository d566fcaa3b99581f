"""What launchers and ranks tell of a job."""

from dataclasses import dataclass

from everstep_controller.core.model.facts import Origin, Phase
from everstep_controller.core.model.join import LauncherJoined
from everstep_controller.core.model.lineage import DataRange


@dataclass(frozen=True, slots=True)
class LauncherLeft:
    """A launcher and all its processes are gone."""

    origin: Origin
    job: str
    reason: str
    by_user: bool
    at_ns: int


@dataclass(frozen=True, slots=True)
class PhaseReached:
    """All ranks of a node reached a phase."""

    origin: Origin
    job: str
    generation: int
    phase: Phase
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExited:
    """A training process ended before its generation did."""

    origin: Origin
    job: str
    generation: int
    rank: int
    exit_code: int
    signal: int
    last_line: str
    at_ns: int
    # A kind of `everstep_common.failures`; empty of older launchers.
    kind: str = ""
    exception: str = ""
    core_dumped: bool = False
    # Last step that the rank completed, as its agent knows it.
    step: int | None = None
    # Where its core dump is, or the command that shows it.
    core_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackAsked:
    """A rank says that the state after a step is bad, and which data is to be left out."""

    origin: Origin
    job: str
    generation: int
    rank: int
    step: int
    reason: str
    at_ns: int
    skip: DataRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartedHere:
    """An agent began a generation itself while the controller was away; see own_restarts."""

    origin: Origin
    job: str
    after_generation: int
    generation: int
    # What it restored, and which generation made that; None and 0 for the beginning.
    step: int | None
    step_generation: int
    decided_ns: int
    at_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class GenerationStopped:
    """No process of the generation is left on the node."""

    origin: Origin
    job: str
    generation: int
    free_port: int
    at_ns: int
    # Killed, but held in the kernel: nobody waits for these processes.
    abandoned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationFinished:
    """All ranks of the node ended with exit code 0."""

    origin: Origin
    job: str
    generation: int
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgressed:
    """Consecutive steps that all ranks completed: one row for about a second of steps."""

    job: str
    generation: int
    first_step: int
    # End of each step on the controller's timeline, and how long it stood still for its snapshot.
    end_ns: tuple[int, ...]
    stall_ns: tuple[int, ...]
    # Newest step that is recoverable without any one node, when the row was made.
    recoverable_step: int | None = None
    snapshots_skipped: int = 0
    origins: tuple[Origin, ...] = ()


LauncherEvent = (
    LauncherJoined
    | LauncherLeft
    | PhaseReached
    | RankExited
    | RollbackAsked
    | RestartedHere
    | GenerationStopped
    | GenerationFinished
    | JobProgressed
)
