"""Judge: the Protocol of what decides, over one view of the fleet, who stands out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from everstep_common.judging.condition import Condition
from everstep_common.judging.fault import Fault
from everstep_common.judging.findings import Measurement
from everstep_controller.judging.view import FleetView, Mask


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """Evidence about one node: a sentence for people, and the numbers that decided."""

    sentence: str
    measurements: tuple[Measurement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """Ruling of a judge on all nodes of a view about one condition.

    What is known of a node is held where neither mask is set. ``explain`` is asked only for nodes
    of which there is something to say: most are healthy, and were so before.
    """

    condition: Condition
    fault: Fault
    faulty: Mask
    healthy: Mask
    explain: Callable[[int], NodeEvidence]


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainRuling:
    """Ruling of a judge on failure domains: what is so of most of its nodes is found of none."""

    condition: Condition
    fault: Fault
    domains: tuple[str, ...]
    faulty: Mask
    healthy: Mask
    explain: Callable[[int], NodeEvidence]


class Judge(Protocol):
    """Judge over one view at a time; how often in a row a ruling must come, its condition says."""

    # Everything that it may find.
    conditions: ClassVar[tuple[Condition, ...]]

    def judge(self, view: FleetView) -> Iterable[Ruling | DomainRuling]:
        """Return a ruling for each condition that can be judged; what is left out is held."""
        ...
