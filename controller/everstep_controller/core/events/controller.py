"""Events of the controller itself: starts, settings, timers, rejections, recovery and verdicts."""

from dataclasses import dataclass

from everstep_common.judging.findings import Finding, FindingKey, Measurement
from everstep_controller.core.model.settings import Settings


@dataclass(frozen=True, slots=True)
class ControllerStarted:
    """A controller process begins; the term grows by one."""

    version: str


@dataclass(frozen=True, slots=True)
class SettingsApplied:
    """The configuration that holds from now on."""

    settings: Settings


@dataclass(frozen=True, slots=True)
class TimerDue:
    """A timer that the core set came due."""

    timer: str


@dataclass(frozen=True, slots=True)
class EventRejected:
    """An event made the core raise; the state is what it was before it."""

    sequence: int
    kind: str
    error: str
    node: str
    job: str


@dataclass(frozen=True, slots=True)
class RecordRejected:
    """Records of a kind that an agent sent cannot be used; they are acknowledged and left out.

    ``job`` and ``error`` are those of the first of them; ``job`` is empty where it names none.
    """

    node: str
    kind: str
    job: str
    error: str
    count: int


@dataclass(frozen=True, slots=True)
class RecoveryBegun:
    """An operator ordered to rebuild what the journal lost from what the agents know."""

    operator: str


@dataclass(frozen=True, slots=True)
class VerdictChanged:
    """A judge of the controller finds something about a node, or (None) finds it over.

    The numbers that decided are part of the event: the samples that they come from are not kept.
    """

    node: str
    key: FindingKey
    finding: Finding | None
    evidence: str
    measurements: tuple[Measurement, ...]


ControllerEvent = (
    ControllerStarted
    | SettingsApplied
    | TimerDue
    | EventRejected
    | RecordRejected
    | RecoveryBegun
    | VerdictChanged
)
