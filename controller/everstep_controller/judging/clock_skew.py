"""Judge of clocks: a node whose wall clock differs from its peers'."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from everstep_common.judging.condition import Condition
from everstep_common.judging.fault import Fault
from everstep_common.judging.findings import Measurement
from everstep_controller.judging.judge import NodeEvidence, Ruling
from everstep_controller.judging.peers import Spread, compare
from everstep_controller.judging.view import FleetView

CLOCK_SKEWED = Condition(
    name="ClockSkewed",
    component="clock",
    meaning="the node's wall clock is certainly 50 ms, and 6 robust standard deviations, from the "
    "median of all nodes, in 3 polls; at least 4 nodes are compared, and at most a fifth of them "
    "differ",
    source="50 ms: node-exporter's alert NodeClockSkewDetected, Ceph's mon_clock_drift_allowed; 6: "
    "ours. Everstep orders nothing by a node's wall clock; certificates, logs and what the job "
    "writes suffer",
    clears_when="it is certainly within half of that in 3 polls",
    raise_after=3,
    clear_after=3,
)
_FAULT = Fault(
    message="the wall clock differs from that of the other nodes; to look at the node's time "
    "synchronisation: chronyc tracking, or timedatectl timesync-status",
    rule="median and median absolute deviation of the clocks of all nodes, and 50 ms",
)


@dataclass(frozen=True, slots=True)
class ClockSkewJudge:
    """Compares the nodes with each other: an error of the controller's own clock is in them all."""

    floor_s: float = 0.05
    conditions: ClassVar[tuple[Condition, ...]] = (CLOCK_SKEWED,)

    def judge(self, view: FleetView) -> Iterator[Ruling]:
        """See Judge."""
        compared = compare(view.wall_offset_s, view.clock_uncertainty_s, self.floor_s)
        if compared is not None:
            yield Ruling(
                condition=CLOCK_SKEWED,
                fault=_FAULT,
                faulty=compared.outside,
                healthy=compared.inside,
                explain=lambda i: _explain(view, compared.spread, i),
            )


def _explain(view: FleetView, spread: Spread, i: int) -> NodeEvidence:
    offset_s, uncertainty_s = float(view.wall_offset_s[i]), float(view.clock_uncertainty_s[i])
    return NodeEvidence(
        f"{offset_s - spread.median:+.3f} s from the median of {spread.count} nodes, known to "
        f"{uncertainty_s:.3f} s",
        (
            Measurement("offset_s", offset_s),
            Measurement("uncertainty_s", uncertainty_s),
            *spread.measurements("s"),
        ),
    )
