"""Finding: a lasting fault of a component, with the words that say how bad it is and what to do."""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from everstep_common.bounds import Opaque, Text

# Names of components and conditions are compared, so never cut; texts for people may be.
_Named = Annotated[str, Opaque(1, 4096, "the name of a component or condition")]
_Said = Annotated[str, Text(4096)]


class Severity(Enum):
    """Severity of a finding."""

    INFO = "info"
    DEGRADED = "degraded"
    FATAL = "fatal"


class SuggestedAction(Enum):
    """Action suggested to an operator or the controller, mildest first."""

    NONE = "none"
    WATCH = "watch"
    RESTART_JOB = "restart_job"
    RESET_DEVICE = "reset_device"
    REBOOT_NODE = "reboot_node"
    REPAIR_HARDWARE = "repair_hardware"


class Mode(Enum):
    """Limit of automation on a condition: how far it may go, least first."""

    OBSERVE = "observe"
    ADVISE = "advise"
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True)
class Measurement:
    """A number that decided about a finding; its name ends with its unit, and it is finite."""

    name: str
    value: float


# What belongs to a job and not to the machine: "job/NAME", "job/NAME/storage".
_OF_JOB = "job/"


@dataclass(frozen=True, slots=True)
class FindingKey:
    """Identity of a finding: the component and the condition it is in."""

    component: str
    condition: str

    @property
    def job(self) -> str:
        """Return the name of the job that it is about; empty for one about the node itself."""
        kind, _, rest = self.component.partition("/")
        return rest.partition("/")[0] if f"{kind}/" == _OF_JOB else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A lasting condition of one component, open until its healthy counterpart clears it."""

    component: _Named
    condition: _Named
    severity: Severity
    message: _Said
    evidence: _Said = ""
    suggested_action: SuggestedAction = SuggestedAction.WATCH
    rule: _Said = ""
    injected: bool = False
    # The most that automation may do about it, whatever the fleet's mode is.
    mode: Mode = Mode.ENFORCE

    @property
    def key(self) -> FindingKey:
        """Return what identifies this finding on its node."""
        return FindingKey(self.component, self.condition)
