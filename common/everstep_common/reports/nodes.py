"""Node reports: what a node's agent says of the node itself, each fact once."""

from dataclasses import dataclass
from enum import Enum

from everstep_common.judging.findings import Finding, FindingKey
from everstep_common.reports import quantities as q
from everstep_common.stamp import Stamp


@dataclass(frozen=True, slots=True)
class FindingRaised:
    """A finding began or changed."""

    finding: Finding
    # When its condition began; None: when it was reported.
    since: Stamp | None = None


@dataclass(frozen=True, slots=True)
class FindingCleared:
    """A finding ended, with its healthy evidence."""

    component: q.Key
    condition: q.Key
    evidence: q.Evidence

    @property
    def key(self) -> FindingKey:
        """Return what identifies the finding on its node."""
        return FindingKey(self.component, self.condition)


@dataclass(frozen=True, slots=True)
class CheckFinished:
    """Result of a check that an order asked for."""

    order_id: q.Key
    # The node may take ranks as far as this check can tell.
    passed: bool
    message: q.Evidence


class InjectionState(Enum):
    """State of a fault that was ordered on purpose."""

    ORDERED = "ordered"
    ACTIVE = "active"
    REFUSED = "refused"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class InjectionChanged:
    """Change of a fault that was ordered on purpose: done, refused or over, and why."""

    # The id of the order that asked for it.
    injection: q.Key
    state: InjectionState
    message: q.Evidence

    def problems(self) -> list[str]:
        """Say what is wrong with the state."""
        if self.state is InjectionState.ORDERED:
            return ["that an injection is ordered is the controller's word, not the agent's"]
        return []
