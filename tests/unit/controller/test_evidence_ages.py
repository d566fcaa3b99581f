"""Histogram of how old what agents tell is when the controller takes it."""

from everstep_common import reports
from everstep_common.judging.findings import Finding, Severity
from everstep_controller.core import events
from everstep_controller.core.events import EventBatch
from everstep_controller.core.model.node import Origin
from everstep_controller.metrics.evidence_ages import EvidenceAges
from everstep_controller.runtime.fold import TakenEvent

S = 1_000_000_000
NOW_NS = 100_000 * S
FOUND = Finding(component="gpu/0", condition="X", severity=Severity.INFO, message="m")


def raised(age_s: float, began_s: float = 0) -> events.Event:
    seen_ns = NOW_NS - int(age_s * S)
    report = reports.FindingRaised(FOUND)
    return events.Reported(Origin("n", "o", 1), seen_ns - int(began_s * S), report, "", seen_ns)


def samples(ages: EvidenceAges) -> dict[tuple[str, str], float]:
    """Return the value of each bucket by kind and bound, and the sum."""
    (family,) = ages.metric()
    return {
        (one.labels["kind"], one.labels.get("le", one.name.rpartition("_")[2])): one.value
        for one in family.samples
    }


def test_each_kind_has_its_buckets_by_when_a_thing_was_seen_not_by_when_it_began() -> None:
    ages = EvidenceAges()
    for event in (raised(0.05), raised(0.7, began_s=50_000), raised(3 * 3600), raised(10**6)):
        ages.note_event(TakenEvent(1, NOW_NS, event, []))
    over = events.FindingSettled("n", FOUND.key, NOW_NS - 20 * S, None, "well")
    ages.note_event(TakenEvent(2, NOW_NS, EventBatch((over, over)), []))
    found = samples(ages)
    raised_at = {bound: found["FindingRaised", bound] for bound in ("0.1", "1.0", "600.0", "+Inf")}
    assert raised_at == {"0.1": 1, "1.0": 2, "600.0": 2, "+Inf": 4}
    assert found["FindingRaised", "21600.0"] == 3
    assert found["FindingSettled", "60.0"] == found["FindingSettled", "count"] == 2
    assert found["FindingSettled", "sum"] == 40


def test_what_says_no_time_is_not_counted() -> None:
    ages = EvidenceAges()
    ages.note_event(TakenEvent(1, NOW_NS, events.NodeDisconnected("n"), []))
    report = reports.CheckFinished("o", True, "fine")
    ages.note_event(TakenEvent(1, NOW_NS, events.Reported(Origin("n", "o", 1), 0, report), []))
    assert samples(ages) == {}
