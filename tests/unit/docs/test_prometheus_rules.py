"""The shipped alerts and the operator's guide speak of series that there are."""

import re
from dataclasses import fields
from pathlib import Path

from everstep_agent.jobs.metrics import JobsMetrics
from everstep_controller.core.model.state import State
from everstep_controller.metrics.collector import (
    Counts,
    driver_metrics,
    fleet_metrics,
    job_metrics,
    standby_metrics,
)
from everstep_controller.metrics.evidence_ages import EvidenceAges
from everstep_controller.metrics.snapshot_metrics import snapshot_metrics
from everstep_controller.metrics.webhook_metrics import webhook_metrics

ROOT = Path(__file__).resolve().parents[3]
_SERIES = re.compile(r"everstep_(?:job|vault|storage)_[a-z_]+")
_IN_RULES = re.compile(r"\beverstep_[a-z_]+")
_COUNTS = Counts(0, 0, 0, 0, False, {}, {}, 0, 0)


def _of_controller() -> set[str]:
    families = (
        *driver_metrics(State(), _COUNTS),
        *fleet_metrics(State(), _COUNTS),
        *job_metrics(State(), 0),
        *snapshot_metrics((), 0),
        *standby_metrics(()),
        *webhook_metrics(()),
    )
    named = {one.name + ("_total" if one.type == "counter" else "") for one in families}
    histograms = {one.name for one in EvidenceAges().metric()}
    return named | {f"{name}_{end}" for name in histograms for end in ("bucket", "count", "sum")}


def _of_agent() -> set[str]:
    return {f"everstep_{field.name}" for field in fields(JobsMetrics)}


def test_every_alert_is_about_series_of_the_controller() -> None:
    rules = (ROOT / "systemd/prometheus-rules.yml").read_text(encoding="utf-8")
    named = set(_IN_RULES.findall(rules))
    assert len(named) >= 11
    assert named - _of_controller() == set()


def test_the_guide_for_operators_names_no_series_that_is_not_there() -> None:
    pages = (ROOT / "docs" / name for name in ("operations.md", "troubleshooting.md"))
    guide = "".join(page.read_text(encoding="utf-8") for page in pages)
    named = set(_SERIES.findall(guide))
    assert len(named) >= 12
    assert named - _of_controller() - _of_agent() == set()
