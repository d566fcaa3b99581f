"""The shipped alerts fire when they should and only then, says promtool."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from real.promtool import promtool

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        shutil.which("promtool") is None, reason="Prometheus is not installed (apt: prometheus)"
    ),
]
RULES = Path(__file__).parents[2] / "monitoring" / "prometheus" / "alerts.yml"
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
    'everstep_job_unsaved_steps{job="bad"}': "0x100 61+1x19",
    'everstep_job_unsaved_steps{job="good"}': "0x120",
    'everstep_job_snapshots_skipped_total{job="bad"}': "0+2x120",
    'everstep_job_snapshots_skipped_total{job="good"}': "0x120",
    'everstep_job_snapshots_skipped_total{job="slow"}': "0x60 5x60",
    'everstep_job_bad_copies_total{job="bad"}': "0x100 1x20",
    'everstep_job_bad_copies_total{job="good"}': "3x120",
    'everstep_job_state{job="hung",state="stalled"}': "0x110 1x10",
    'everstep_job_state{job="slow",state="stalled"}': "0x118 1x2",
    'everstep_job_state{job="starved",state="waiting_capacity"}': "1x120",
    'everstep_job_state{job="restarting",state="waiting_state"}': "0x118 1x2",
    'everstep_job_failed{job="failed"}': "_x110 1x10",
    'everstep_webhook_failing{webhook="pager"}': "0x110 1x10",
    'everstep_webhook_failing{webhook="chat"}': "0x117 1x3",
    'everstep_webhook_failing{webhook="flooded"}': "0x120",
    'everstep_webhook_lag_lines{webhook="pager"}': "0x90 5000x30",
    'everstep_webhook_lag_lines{webhook="chat"}': "0x110 5000x10",
    'everstep_webhook_lag_lines{webhook="flooded"}': "0x90 5000x30",
    'everstep_driver_lag_seconds{driver="slurm"}': "0x100 60+60x20",
    'everstep_driver_lag_seconds{driver="kubernetes"}': "0x117 30+60x2",
    "everstep_drivers_paused": "0x120",
    'everstep_driver_reading_age_seconds{driver="slurm"}': "0+60x120",
    'everstep_driver_reading_age_seconds{driver="kubernetes"}': "30x120",
    'everstep_job_time_seconds{job="bad",category="productive"}': "0+60x120",
    'everstep_job_time_seconds{job="bad",category="unknown"}': "0x100 9x20",
    'everstep_job_time_seconds{job="good",category="productive"}': "0+60x120",
    'everstep_job_time_seconds{job="good",category="unknown"}': "1x120",
    # One lost node, one that was isolated, one without an agent for long and two for a reason or a
    # moment; the rest is well.
    'everstep_node_state{node="dead",state="lost"}': "1x120",
    'everstep_node_state{node="well",state="healthy"}': "1x120",
    'everstep_node_state{node="fixed",state="maintenance"}': "1x120",
    'everstep_node_state{node="silent",state="healthy"}': "1x120",
    'everstep_node_claim{node="sick",owner="automation"}': "1x120",
    'everstep_node_claim{node="kept",owner="operator"}': "1x120",
    'everstep_node_connected{node="dead"}': "0x120",
    'everstep_node_connected{node="well"}': "1x120",
    'everstep_node_connected{node="fixed"}': "0x120",
    'everstep_node_connected{node="silent"}': "1x100 0x20",
    'everstep_node_connected{node="upgraded"}': "1x118 0x2",
}
# Of a controller that is there, halted, or cannot write, or misses many agents; and of one that is
# gone after an hour.
_WELL = {"term": "1x120", "halted": "0x120", "journal_full": "0x120", "agents_cut_off": "0x120"}
CONTROLLERS = {
    "well": _WELL,
    "halted": {**_WELL, "halted": "1x120"},
    "full": {**_WELL, "journal_full": "1x120"},
    "alone": {**_WELL, "agents_cut_off": "0x110 9x10"},
    "few": {**_WELL, "agents_cut_off": "0x110 7x10"},
    "gone": {name: values.replace("120", "60") for name, values in _WELL.items()},
}
OF_CONTROLLER = {
    "EverstepControllerDown": "gone",
    "EverstepControllerHalted": "halted",
    "EverstepJournalFull": "full",
    "EverstepAgentsCutOff": "alone",
    "EverstepSomeAgentsCutOff": "few",
}
_SEVERITY = {"EverstepSomeAgentsCutOff": "warning"}
_ANNOTATIONS = ("annotations:", "summary:", "runbook_url:")
FIRING = {
    "EverstepRecoverableStepTooOld": {"job": "bad"},
    # One that is about the state itself has its label.
    "EverstepNoRecoverableStep": {"job": "new", "state": "running"},
    "EverstepStorageFails": {"job": "bad"},
    "EverstepStepsUnsaved": {"job": "bad"},
    "EverstepSnapshotsSkipped": {"job": "bad"},
    "EverstepBadCopies": {"job": "bad"},
    "EverstepNodeLost": {"node": "dead", "state": "lost"},
    "EverstepNodeIsolated": {"node": "sick", "owner": "automation"},
    "EverstepAgentDown": {"node": "silent"},
    "EverstepWebhookFails": {"webhook": "pager"},
    "EverstepWebhookBehind": {"webhook": "flooded"},
    "EverstepDriverBehind": {"driver": "slurm"},
    "EverstepDriverUnread": {"driver": "slurm"},
    "EverstepTimeUnknown": {"job": "bad"},
    "EverstepJobFailed": {"job": "failed"},
    "EverstepJobStalled": {"job": "hung", "state": "stalled"},
    "EverstepJobWaits": {"job": "starved", "state": "waiting_capacity"},
}


# Of what is about no single one.
OTHERS = ("EverstepDriversPaused", "EverstepEvidenceLate")


def test_promtool_takes_the_rules() -> None:
    said = promtool("check", "rules", str(RULES))
    assert said == (0, f"{len(FIRING) + len(OF_CONTROLLER) + len(OTHERS)} rules found")


@pytest.mark.parametrize(("paused", "fires"), [("1x120", True), ("0x90 1x30", False)])
def test_a_kill_switch_that_was_forgotten_is_told_and_silences_the_alert_on_what_waits(
    paused: str, fires: bool, tmp_path: Path
) -> None:
    series = {**SERIES, "everstep_drivers_paused": paused}
    told = [{"severity": "warning"}] if fires else []
    code, said = _fires(tmp_path, "EverstepDriversPaused", series, told)
    assert code == 0, said
    code, said = _fires(tmp_path, "EverstepDriverBehind", series, [])
    assert code == 0, said


@pytest.mark.parametrize(
    ("in_time", "fires"),
    [
        # Half of what comes is late, for half an hour; a burst after an absence; nothing is.
        ("0+10x90 900+5x30", True),
        ("0+10x60 600x1 600+10x58", False),
        ("0+10x120", False),
    ],
)
def test_evidence_that_is_late_for_long_is_told_and_a_burst_after_an_absence_is_not(
    in_time: str, fires: bool, tmp_path: Path
) -> None:
    name = "everstep_evidence_age_seconds_bucket"
    series = {
        f'{name}{{kind="FindingRaised",le="60.0"}}': in_time,
        f'{name}{{kind="FindingRaised",le="+Inf"}}': "0+10x120",
    }
    told = [{"severity": "warning"}] if fires else []
    code, said = _fires(tmp_path, "EverstepEvidenceLate", series, told)
    assert code == 0, said


def test_each_alert_fires_for_the_job_or_node_that_it_is_about(tmp_path: Path) -> None:
    told = {alert: [{**labels, "severity": "warning"}] for alert, labels in FIRING.items()}
    code, said = _all_fire(tmp_path, SERIES, told)
    assert code == 0, said


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_each_alert_about_the_controller_fires_for_its_trouble_only(
    controller: str, tmp_path: Path
) -> None:
    series = {f"everstep_controller_{n}": values for n, values in CONTROLLERS[controller].items()}
    told = {
        alert: [{"severity": _SEVERITY.get(alert, "critical")}] if trouble == controller else []
        for alert, trouble in OF_CONTROLLER.items()
    }
    code, said = _all_fire(tmp_path, series, told)
    assert code == 0, said


def test_an_alert_that_is_silent_or_fires_for_another_is_named(tmp_path: Path) -> None:
    told = {alert: [{**labels, "severity": "warning"}] for alert, labels in FIRING.items()}
    told["EverstepNodeLost"] = [{"node": "well", "state": "lost", "severity": "warning"}]
    code, said = _all_fire(tmp_path, SERIES, told)
    assert code != 0
    assert "EverstepNodeLost" in said
    assert "EverstepNodeIsolated" not in said


def test_agents_that_are_away_together_are_one_alert_and_another_one_is_its_own(
    tmp_path: Path,
) -> None:
    together = {f'everstep_node_connected{{node="n{n}"}}': "1x99 0x21" for n in range(3)}
    cut_off = {f'everstep_node_cut_off{{node="n{n}"}}': "_x99 1x21" for n in range(3)}
    series = {**SERIES, **together, **cut_off, "everstep_controller_agents_cut_off": "0x99 3x21"}
    silent = [{"node": "silent", "severity": "warning"}]
    some = [{"severity": "warning"}]
    told = {
        "EverstepAgentDown": silent,
        "EverstepSomeAgentsCutOff": some,
        "EverstepAgentsCutOff": [],
    }
    for alert, labels in told.items():
        code, said = _fires(tmp_path, alert, series, labels)
        assert code == 0, said


def test_most_agents_of_a_small_fleet_are_told_as_many_are(tmp_path: Path) -> None:
    fleet = {f'everstep_node_connected{{node="n{n}"}}': "1x99 0x21" for n in range(4)}
    series = {**fleet, "everstep_controller_agents_cut_off": "0x99 3x21"}
    critical = [{"severity": "critical"}]
    for alert, labels in {"EverstepAgentsCutOff": critical, "EverstepSomeAgentsCutOff": []}.items():
        code, said = _fires(tmp_path, alert, series, labels)
        assert code == 0, said


def test_a_job_that_dies_between_its_waits_for_the_next_attempt_is_told_of(tmp_path: Path) -> None:
    backs_off = {
        # Ten minutes of waiting, and two of an attempt, again and again.
        'everstep_job_state{job="outage",state="backing_off"}': "1x9 0x1 " * 10,
        # A storage that was away for three minutes, a quarter of an hour ago and just now.
        'everstep_job_state{job="over",state="backing_off"}': "0x103 1x2 0x14",
        'everstep_job_state{job="moment",state="backing_off"}': "0x117 1x2",
    }
    told = [{"job": "outage", "state": "backing_off", "severity": "warning"}]
    code, said = _fires(tmp_path, "EverstepJobWaits", backs_off, told)
    assert code == 0, said


def _fires(
    folder: Path, alert: str, series: Mapping[str, str], labels: Sequence[Mapping[str, str]]
) -> tuple[int, str]:
    """Return what promtool says of one alert; see _all_fire."""
    return _all_fire(folder, series, {alert: labels})


def _all_fire(
    folder: Path, series: Mapping[str, str], told: Mapping[str, Sequence[Mapping[str, str]]]
) -> tuple[int, str]:
    """Return what promtool says of alerts that should fire with these labels after two hours."""
    # promtool compares annotations too: they are the rules' own, so they are left out of these.
    rules = folder / "rules.yml"
    rules.write_text(_without_annotations(RULES.read_text(encoding="utf-8")))
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": v} for name, v in series.items()],
        "alert_rule_test": [
            {
                "eval_time": "2h",
                "alertname": alert,
                "exp_alerts": [{"exp_labels": one} for one in labels],
            }
            for alert, labels in told.items()
        ],
    }
    # JSON is YAML.
    test = folder / "test.yml"
    test.write_text(json.dumps({"rule_files": [str(rules)], "tests": [case]}))
    return promtool("test", "rules", str(test))


def _without_annotations(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(one for one in lines if not one.lstrip().startswith(_ANNOTATIONS))


def test_nothing_is_told_of_schedulers_while_an_operator_has_paused_them(tmp_path: Path) -> None:
    paused = {**SERIES, "everstep_drivers_paused": "0x50 1x70"}
    code, said = _fires(tmp_path, "EverstepDriverBehind", paused, [])
    assert code == 0, said
