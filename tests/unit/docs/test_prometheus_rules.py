"""The shipped alerts and the operator's guide speak of series that there are."""

import re
from dataclasses import fields
from pathlib import Path

import everstep_controller.metrics
from everstep_agent.jobs.metrics import JobsMetrics
from everstep_controller.metrics import standby_metrics
from everstep_controller.snapshot_metrics import snapshot_metrics

ROOT = Path(__file__).resolve().parents[3]
_SERIES = re.compile(r"everstep_(?:job|vault|storage)_[a-z_]+")


def _of_controller() -> set[str]:
    found = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in (*snapshot_metrics((), 0), *standby_metrics(()))
    }
    # Those of the ledger are named in the module that yields them.
    module = everstep_controller.metrics.__file__ or ""
    text = Path(module).read_text(encoding="utf-8")
    gauges = re.findall(r'^    \(\n?\s*"([a-z_]+)"', text, re.MULTILINE)
    found |= {f"everstep_job_{name}" for name in gauges}
    return found | {"everstep_job_state", "everstep_job_snapshots_skipped_total"}


def _of_agent() -> set[str]:
    return {f"everstep_{field.name}" for field in fields(JobsMetrics)}


def test_every_alert_is_about_series_of_the_controller() -> None:
    rules = (ROOT / "systemd/prometheus-rules.yml").read_text(encoding="utf-8")
    named = set(_SERIES.findall(rules))
    assert len(named) >= 5
    assert named - _of_controller() == set()


def test_the_guide_for_operators_names_no_series_that_is_not_there() -> None:
    guide = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    named = set(_SERIES.findall(guide))
    assert len(named) >= 12
    assert named - _of_controller() - _of_agent() == set()
