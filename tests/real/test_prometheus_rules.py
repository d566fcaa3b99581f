"""The shipped alerts fire when they should and only then, says promtool."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        shutil.which("promtool") is None, reason="Prometheus is not installed (apt: prometheus)"
    ),
]
RULES = Path(__file__).parents[2] / "systemd" / "prometheus-rules.yml"
# Two hours, a sample in each minute. The job "bad" has every trouble, "good" has none, "waiting"
# does not run, and "slow" was slow once.
SERIES = {
    'everstep_job_state{job="bad",state="running"}': "1x120",
    'everstep_job_state{job="good",state="running"}': "1x120",
    'everstep_job_state{job="new",state="running"}': "1x120",
    'everstep_job_state{job="waiting",state="running"}': "0x120",
    'everstep_job_recoverable_step_age_seconds{job="bad"}': "0+60x120",
    'everstep_job_recoverable_step_age_seconds{job="good"}': "30x120",
    'everstep_job_recoverable_step_age_seconds{job="waiting"}': "9000x120",
    'everstep_job_storing_failed{job="bad"}': "1x120",
    'everstep_job_storing_failed{job="good"}': "0x120",
    'everstep_job_snapshots_skipped_total{job="bad"}': "0+2x120",
    'everstep_job_snapshots_skipped_total{job="good"}': "0x120",
    'everstep_job_snapshots_skipped_total{job="slow"}': "0x60 5x60",
    'everstep_job_bad_copies_total{job="bad"}': "0x100 1x20",
    'everstep_job_bad_copies_total{job="good"}': "3x120",
}
FIRING = {
    "EverstepRecoverableStepTooOld": "bad",
    "EverstepNoRecoverableStep": "new",
    "EverstepStorageFails": "bad",
    "EverstepSnapshotsSkipped": "bad",
    "EverstepBadCopies": "bad",
}


def test_promtool_takes_the_rules() -> None:
    assert _promtool("check", "rules", str(RULES)) == (0, f"{len(FIRING)} rules found")


@pytest.mark.parametrize("alert", FIRING)
def test_an_alert_fires_for_the_job_that_it_is_about(alert: str, tmp_path: Path) -> None:
    labels = {"job": FIRING[alert], "severity": "warning"}
    # The one that is about the state itself has its label.
    labels |= {"state": "running"} if alert == "EverstepNoRecoverableStep" else {}
    # promtool compares annotations too: they are the rules' own, so they are left out of these.
    rules = tmp_path / "rules.yml"
    rules.write_text(_without_annotations(RULES.read_text(encoding="utf-8")))
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": v} for name, v in SERIES.items()],
        "alert_rule_test": [
            {"eval_time": "2h", "alertname": alert, "exp_alerts": [{"exp_labels": labels}]}
        ],
    }
    # JSON is YAML.
    test = tmp_path / "test.yml"
    test.write_text(json.dumps({"rule_files": [str(rules)], "tests": [case]}))
    code, said = _promtool("test", "rules", str(test))
    assert code == 0, said


def _without_annotations(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(one for one in lines if not one.lstrip().startswith(("annotations:", "summary")))


def _promtool(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    said = done.stdout + done.stderr
    return done.returncode, (said.partition("SUCCESS: ")[2] or said).strip()
