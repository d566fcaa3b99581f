"""Training process messages: a process's part in its job, its progress, and the agent's answers."""

from dataclasses import dataclass

from everstep_common import quantities as q
from everstep_common.rank_messages.reports import DataRange

# --- trainer to agent ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """First message of a training process."""

    protocol: int
    version: q.Title
    job: q.JobName
    token: q.Token
    generation: q.Generation
    rank: q.Rank


@dataclass(frozen=True, slots=True)
class Ready:
    """This process has its state (restored, or its own start) and begins to train."""

    at_boot_ns: q.BootNs


@dataclass(frozen=True, slots=True)
class Progress:
    """This rank completed a step; ``stall_ns`` is how long it stood still for the snapshot."""

    step: q.ToldStep
    at_boot_ns: q.BootNs
    stall_ns: q.DurationNs
    # How many steps of this process were not saved, for whatever reason.
    unsaved: q.Count = 0


@dataclass(frozen=True, slots=True)
class Paused:
    """This rank begins what is no step, an evaluation say; without a name it goes on training."""

    name: q.Word
    at_boot_ns: q.BootNs


@dataclass(frozen=True, slots=True)
class AskSkipped:
    """Ask which data this generation leaves out."""


# --- agent to trainer ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refused:
    """No; one sentence why, which names the next step."""

    reason: str


@dataclass(frozen=True, slots=True)
class RefusedForNow:
    """Not now: another launcher has the place. Who asks again in a moment may be let in.

    Apart from Refused, which launchers of every version understand.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Attached:
    """The process belongs to the running generation."""

    node: str
    restore_step: int | None


@dataclass(frozen=True, slots=True)
class Skipped:
    """Data that is left out, in order and apart."""

    ranges: tuple[DataRange, ...]
