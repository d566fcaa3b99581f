"""Judge of sample streams: a node whose samples are late or missing while its peers' come."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from everstep_common.judging.condition import Condition
from everstep_common.judging.fault import Fault
from everstep_common.judging.findings import Measurement, Mode
from everstep_controller.judging.judge import NodeEvidence, Ruling
from everstep_controller.judging.peers import Direction, Spread, compare
from everstep_controller.judging.view import FleetView, Values

SAMPLES_MISSING = Condition(
    name="SamplesMissing",
    component="agent/samples",
    meaning="the agent's stream is open, and its newest sample is certainly 15 s, and 6 robust "
    "standard deviations, older than the median of all nodes, in 2 polls; at least 4 nodes are "
    "compared, at most a fifth of them are late, and the samples of most are not late",
    source="ours: samples come every 5 s, so that three messages are missing; the fleet as a whole "
    "is late when the median is 10 s, which is the controller's fault or the network's",
    clears_when="samples come again, certainly less than half as late, in 3 polls",
    raise_after=2,
    clear_after=3,
    mode=Mode.ADVISE,
)
_FAULT = Fault(
    message="the agent is connected and sends no samples: what the node does is not known; to see "
    "what holds it: journalctl -u everstep-agent on the node",
    rule="median and median absolute deviation of the age of all nodes' newest samples, and 15 s",
)


@dataclass(frozen=True, slots=True)
class SampleStreamJudge:
    """Compares how old the newest samples are."""

    floor_s: float = 15.0
    # A median above this is not about single nodes.
    fleet_late_s: float = 10.0
    conditions: ClassVar[tuple[Condition, ...]] = (SAMPLES_MISSING,)

    def judge(self, view: FleetView) -> Iterator[Ruling]:
        """See Judge."""
        uncertainty_s = view.clock_uncertainty_s
        compared = compare(_age_s(view), uncertainty_s, self.floor_s, Direction.ABOVE)
        if compared is not None and compared.spread.median <= self.fleet_late_s:
            yield Ruling(
                condition=SAMPLES_MISSING,
                fault=_FAULT,
                faulty=compared.outside,
                # That the stream is young does not show that samples come.
                healthy=compared.inside & np.isfinite(view.sample_age_s),
                explain=lambda i: _explain(view, compared.spread, i),
            )


def _age_s(view: FleetView) -> Values:
    """Return the age of each node's newest sample, or of its stream where none came on it yet."""
    return np.where(np.isfinite(view.sample_age_s), view.sample_age_s, view.stream_age_s)


def _explain(view: FleetView, spread: Spread, i: int) -> NodeEvidence:
    came = bool(np.isfinite(view.sample_age_s[i]))
    age_s = float((view.sample_age_s if came else view.stream_age_s)[i])
    seen = "the newest sample is" if came else "no sample came on this stream, which is"
    return NodeEvidence(
        f"{seen} {age_s:.1f} s old; the median of {spread.count} nodes is {spread.median:.1f} s",
        (
            Measurement("age_s", age_s),
            Measurement("uncertainty_s", float(view.clock_uncertainty_s[i])),
            Measurement("stream_age_s", float(view.stream_age_s[i])),
            *spread.measurements("s"),
        ),
    )
