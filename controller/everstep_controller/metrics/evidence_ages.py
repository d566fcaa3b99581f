"""Ages of evidence: how old what agents tell is when the controller takes it, by kind."""

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client.core import HistogramMetricFamily, Metric

from everstep_controller.core.events import FindingSettled, Reported, each_event
from everstep_controller.runtime.fold import TakenEvent

# In seconds: on its way, held up, of a controller that restarted, of one that was away.
_BOUNDS_S = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 600.0, 3600.0, 21600.0, 86400.0)
_LABELS = (*map(str, _BOUNDS_S), "+Inf")


class EvidenceAges:
    """Counts of ages by kind of event, since this start of the controller."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums_s: dict[str, float] = {}

    def note_event(self, taken: TakenEvent) -> None:
        """Take note of what an event tells that was seen before."""
        for event in each_event(taken.event):
            if isinstance(event, Reported):
                self._note(type(event.report).__name__, event.seen_ns or event.at_ns, taken.now_ns)
            elif isinstance(event, FindingSettled):
                self._note("FindingSettled", event.seen_ns or event.at_ns, taken.now_ns)

    def metric(self) -> Iterator[Metric]:
        """Yield the histogram."""
        family = HistogramMetricFamily(
            "everstep_evidence_age_seconds",
            "How old what an agent told was when the controller took it, by kind of event.",
            labels=["kind"],
        )
        for kind, counts in sorted(self._counts.items()):
            sums = [sum(counts[: place + 1]) for place in range(len(counts))]
            buckets = [(label, float(count)) for label, count in zip(_LABELS, sums, strict=True)]
            family.add_metric([kind], buckets, self._sums_s[kind])
        yield family

    def _note(self, kind: str, seen_ns: int, now_ns: int) -> None:
        if not seen_ns:
            return  # it says no time
        age_s = max(0, now_ns - seen_ns) / 1e9
        counts = self._counts.setdefault(kind, [0] * len(_LABELS))
        counts[bisect_left(_BOUNDS_S, age_s)] += 1
        self._sums_s[kind] = self._sums_s.get(kind, 0.0) + age_s
