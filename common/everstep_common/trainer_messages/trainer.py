"""What a training process says of its part in the job, and what it is told."""

from dataclasses import dataclass

from everstep_common.reports import DataRange

# --- trainer to agent ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """First message of a training process."""

    protocol: int
    version: str
    job: str
    token: str
    generation: int
    rank: int


@dataclass(frozen=True, slots=True)
class Ready:
    """This process has its state (restored, or its own start) and begins to train."""

    at_boot_ns: int


@dataclass(frozen=True, slots=True)
class Progress:
    """This rank completed a step; ``stall_ns`` is how long it stood still for the snapshot."""

    step: int
    at_boot_ns: int
    stall_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """The state after ``step`` is bad: the job shall go on from an older one. Not answered."""

    step: int
    reason: str
    at_boot_ns: int
    # Data that is left out from then on.
    skip: DataRange | None = None


@dataclass(frozen=True, slots=True)
class AskSkipped:
    """Ask which data this generation leaves out."""


# --- agent to trainer ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attached:
    """The process belongs to the running generation."""

    node: str
    restore_step: int | None


@dataclass(frozen=True, slots=True)
class Skipped:
    """Data that is left out, in order and apart."""

    ranges: tuple[DataRange, ...]
