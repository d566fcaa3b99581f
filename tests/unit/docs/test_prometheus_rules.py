"""The shipped alerts and the operator's guide speak of series that there are."""

import re
from dataclasses import fields
from pathlib import Path

from everstep_agent.jobs.metrics import JobsMetrics
from everstep_controller.core.model.state import State
from everstep_controller.metrics.collector import (
    Counts,
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
_SUFFIXES = {"counter": "_total", "histogram": "_bucket"}
_COUNTS = Counts(0, 0, 0, 0, False, {}, {}, 0, 0)


def series_of_controller() -> set[str]:
    """Return the names of all series of the controller, also where there are none of it yet."""
    families = (
        *fleet_metrics(State(), _COUNTS),
        *job_metrics(State(), 0),
        *snapshot_metrics((), 0),
        *standby_metrics(()),
        *webhook_metrics(()),
        *EvidenceAges().metric(),
    )
    return {one.name + _SUFFIXES.get(one.type, "") for one in families}


def _of_agent() -> set[str]:
    return {f"everstep_{field.name}" for field in fields(JobsMetrics)}


def test_every_alert_is_about_series_of_the_controller() -> None:
    rules = (ROOT / "monitoring/prometheus/alerts.yml").read_text(encoding="utf-8")
    named = set(_IN_RULES.findall(rules))
    assert len(named) >= 11
    assert named - series_of_controller() == set()


def test_the_guide_for_operators_names_no_series_that_is_not_there() -> None:
    pages = (ROOT / "docs" / name for name in ("operations.md", "troubleshooting.md"))
    guide = "".join(page.read_text(encoding="utf-8") for page in pages)
    named = set(_SERIES.findall(guide))
    assert len(named) >= 12
    assert named - series_of_controller() - _of_agent() == set()


def test_every_alert_leads_to_a_page_and_a_headline_that_there_are() -> None:
    rules = (ROOT / "monitoring/prometheus/alerts.yml").read_text(encoding="utf-8")
    links = re.findall(r"runbook_url: docs/(\S+?)#(\S+)", rules)
    assert len(links) == rules.count("- alert:")
    for page, anchor in set(links):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        anchors = {re.sub(r"[^a-z0-9 -]", "", head.lower()).replace(" ", "-") for head in heads}
        assert anchor in anchors, f"{page} has no headline {anchor}"
