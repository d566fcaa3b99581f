"""`everstep report`: what it asks for, what it writes, and what it says to a wrong line."""

import csv
import io
import json
from pathlib import Path

import pytest

from everstep_cli.commands.session import AdminSession
from everstep_cli.main import run_command, screen
from everstep_cli.report.from_admin import (
    NoTimeError,
    Range,
    Told,
    account_of_days,
    account_of_life,
    acquitted,
    held_back,
)
from everstep_cli.report.from_history import incidents_of
from everstep_cli.report.sheet import incidents_csv
from everstep_proto.generated import admin_pb2
from fakes.cli_admin import NOW_NS, FakeAdmin

_NS = 1_000_000_000


def call(*arguments: str) -> int:
    session = AdminSession(FakeAdmin().connect, screen(io.StringIO(), 80), lambda: NOW_NS)
    return run_command(session, ("report", *arguments))


def event(seconds: int, reason: str, subject: str, message: str = "") -> admin_pb2.Event:
    return admin_pb2.Event(at_ns=seconds * _NS, reason=reason, subject=subject, message=message)


def test_the_report_of_a_job_is_a_file_with_its_incidents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "demo.html"
    assert call("demo", "-o", str(path)) == 0
    told = path.read_text(encoding="utf-8")
    assert "<h1>Job demo</h1>" in told
    assert '<tr id="demo-1">' in told
    assert capsys.readouterr().out.startswith(f"{path}: Job demo, 2 incidents, ")
    assert [one.name for one in tmp_path.iterdir()] == ["demo.html"]


def test_the_report_of_the_fleet_has_a_column_for_each_day(tmp_path: Path) -> None:
    path = tmp_path / "fleet.html"
    assert call("--fleet", "--last", "2", "-o", str(path)) == 0
    told = path.read_text(encoding="utf-8")
    assert "<h1>All jobs</h1>" in told
    assert "What each period of All jobs went to" in told


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ((), "name one JOB, or say --fleet"),
        (("demo", "--fleet"), "name one JOB, or say --fleet"),
        (("--fleet", "--from", "2027-01-10", "--to", "2027-01-09"), "--from is after --to"),
        (("--fleet", "--from", "2027-02-01"), "--from is in the future"),
        (("--fleet", "--from", "2020-02-01"), "a range has at most 400 days: begin later"),
        (("--fleet", "--from", "yesterday"), "'yesterday' is no day: say 2026-11-30"),
        (("demo", "--json"), "'everstep ettr demo --json' has its numbers"),
    ],
)
def test_a_wrong_line_is_told_what_to_type(
    line: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*line) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_named_and_nothing_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none" / "demo.html"
    assert call("demo", "-o", str(path)) == 1
    assert f"{path} cannot be written: No such file or directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_who_was_only_suspected_is_acquitted_and_who_was_isolated_is_not() -> None:
    events = [
        event(1, "NodeSuspect", "n1", "n1 answers late"),
        event(2, "NodeSuspect", "n2", "n2 has lost a link"),
        event(3, "NodeIsolated", "n2"),
        event(4, "NodeHealthy", "n3"),
        event(9, "NodeHealthy", "n1", "n1 answers again"),
        event(9, "NodeHealthy", "n2"),
    ]
    (note,) = acquitted(events)
    assert (note.at_ns, note.subject) == (1 * _NS, "n1")
    assert note.sentence == "n1 answers late; cleared after 8.0 s: n1 answers again"


def test_what_was_not_done_is_told_with_its_reason() -> None:
    told = event(5, "IsolationHeldBack", "n1", "the budget of 2 isolated nodes is spent")
    assert [one.sentence for one in held_back([told, event(6, "NodeHealthy", "n1")])] == [
        "the budget of 2 isolated nodes is spent"
    ]


_DAY_NS = 86_400 * _NS


def days(*seconds: int) -> admin_pb2.FleetLedger:
    """Return the ledger of days from the tenth on, with so many seconds each."""
    return admin_pb2.FleetLedger(
        periods=[
            admin_pb2.FleetPeriod(
                begin_ns=(10 + place) * _DAY_NS,
                end_ns=(11 + place) * _DAY_NS,
                categories=[admin_pb2.Category(name="productive", time_ns=one * _NS)],
            )
            for place, one in enumerate(seconds)
        ]
    )


def test_only_the_days_that_are_asked_for_count() -> None:
    told = [admin_pb2.Incident(incident=f"t.{n}", onset_ns=n * _DAY_NS + 1) for n in (10, 11)]
    incidents = incidents_of([], told, by_nodes=True)
    wanted = Range(11 * _DAY_NS, 13 * _DAY_NS)
    found = account_of_days("All jobs", days(100, 200, 300, 400), wanted, Told(incidents))
    assert found.seconds == 500
    assert [one.id for one in found.incidents] == ["t.11"]
    assert (found.begin_ns, found.end_ns) == (11 * _DAY_NS, 13 * _DAY_NS)


def test_days_of_which_nothing_is_known_name_those_that_are() -> None:
    wanted = Range(2 * _DAY_NS, 3 * _DAY_NS)
    with pytest.raises(NoTimeError, match="there are days from 1970-01-11 to 1970-01-12"):
        account_of_days("All jobs", days(1, 2), wanted, Told())
    with pytest.raises(NoTimeError, match="no job has had any time yet"):
        account_of_days("All jobs", days(), wanted, Told())


def row(kind: str, key: str, begin_ns: int, at_ns: int = 0, **told: object) -> admin_pb2.HistoryRow:
    return admin_pb2.HistoryRow(
        kind=kind, key=key, begin_ns=begin_ns, at_ns=at_ns, told=json.dumps(told)
    )


def test_incidents_that_the_state_has_forgotten_come_from_the_history() -> None:
    rows = [
        row("incident", "t-1.1", 5, job="t-1", name="t", cause="node", message="n1 was lost",
            node="n1", costs={"inc.detect": 2 * _NS}, node_costs={"inc.detect": 8 * _NS},
            step_before=12, step_restored=10),
        row("incident", "t-1.2", 9, job="t-1", name="t", cause="node", message="as it was"),
        row("incident", "u-1.1", 7, job="u-1", name="u", cause="process", message="another job"),
    ]  # fmt: skip
    newest = [admin_pb2.Incident(incident="t-1.2", onset_ns=9, message="as it is now")]
    first, second = incidents_of(rows, newest, "t", by_nodes=True)
    assert (first.id, first.node, first.seconds, first.steps_lost) == ("t-1.1", "n1", 8.0, 2)
    assert second.sentence == "as it is now"
    assert [one.id for one in incidents_of(rows, newest, "t-1", by_nodes=False)] == [
        "t-1.1",
        "t-1.2",
    ]
    assert len(incidents_of(rows, newest, by_nodes=False)) == 3


_HOUR_NS = 3600 * _NS


def test_the_hours_of_a_job_sum_to_all_of_its_time_whatever_its_history_lacks() -> None:
    ledger = admin_pb2.Ledger(
        job="t",
        begin_ns=_HOUR_NS // 2,
        wall_ns=3 * _HOUR_NS,
        categories=[
            admin_pb2.Category(name="productive", time_ns=int(2.5 * _HOUR_NS)),
            admin_pb2.Category(name="lost.recompute", time_ns=_HOUR_NS // 2),
        ],
    )
    hours = [
        row("job-hour", "t-1", 0, _HOUR_NS, totals={"productive": _HOUR_NS // 2}),
        # The one between is damaged and left out; a wrong clock wrote one of times to come.
        row("job-hour", "t-1", 2 * _HOUR_NS, 3 * _HOUR_NS, totals={"gap": int(2.5 * _HOUR_NS)}),
        row("job-hour", "t-1", 90 * _HOUR_NS, 91 * _HOUR_NS, totals={"gap": 90 * _HOUR_NS}),
    ]
    incidents = incidents_of([], [admin_pb2.Incident(incident="t-1.1", onset_ns=_HOUR_NS)],
                             by_nodes=False)  # fmt: skip
    told = account_of_life(ledger, admin_pb2.JobDetail(), Told(incidents, hours=hours))
    assert [one.seconds for one in told.periods] == [1800, 7200, 1800]
    assert [one.failures for one in told.periods] == [0, 1, 0]
    assert sum(one.seconds for one in told.periods) == told.seconds
    assert told.of_one_job


def test_accounts_are_told_only_where_a_job_names_one() -> None:
    wanted = Range(10 * _DAY_NS, 11 * _DAY_NS)
    one = admin_pb2.FleetPeriod(key="vision", device_ns=_HOUR_NS, ettr_time=0.9, cost=2.5)
    none = admin_pb2.FleetPeriod(key="(none)", device_ns=_HOUR_NS)
    named = admin_pb2.FleetLedger(periods=[one, none])
    told = Told(accounts=named, queues=admin_pb2.FleetLedger(periods=[none]))
    found = account_of_days("All jobs", days(100), wanted, told)
    assert [(bill.name, bill.cost) for bill in found.accounts] == [("vision", 2.5), ("(none)", 0)]
    assert found.queues == []


def test_the_incidents_are_a_table_for_spreadsheets_too(tmp_path: Path) -> None:
    path = tmp_path / "demo.csv"
    assert call("demo", "-o", str(tmp_path / "demo.html"), "--csv", str(path)) == 0
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    assert [one["incident"] for one in rows] == ["demo-17", "demo-1"]
    assert rows[0]["seconds inc.detect"] == rows[0]["seconds"] == "60.000"


def test_a_sentence_that_looks_like_a_formula_is_words_to_a_spreadsheet() -> None:
    told = [admin_pb2.Incident(incident="t.1", node="+n1", message="=cmd()")]
    (found,) = csv.DictReader(io.StringIO(incidents_csv(incidents_of([], told, by_nodes=False))))
    assert (found["node"], found["what happened"]) == ("'+n1", "'=cmd()")


def test_a_job_that_the_controller_has_forgotten_is_told_from_its_history(tmp_path: Path) -> None:
    assert call("long-gone", "-o", str(tmp_path / "gone.html")) == 0
    assert "<h1>Job long-gone</h1>" in (tmp_path / "gone.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("each_s", "told"), [(12.0, "250.0 %"), (0.0, "all, by stalls")])
def test_a_budget_that_stalls_have_used_up_is_no_unused_one(each_s: float, told: str) -> None:
    burnt = 2.5 if each_s else 0.0
    ledger = admin_pb2.Ledger(failures=3, budget_per_failure_s=each_s, budget_burnt=burnt)
    found = account_of_life(ledger, admin_pb2.JobDetail(), Told())
    assert dict(found.facts)["used of what may be lost for 99.5 %"] == told


def test_days_of_all_jobs_have_a_budget_and_published_ratios_too() -> None:
    ledger = admin_pb2.FleetLedger(
        periods=[
            admin_pb2.FleetPeriod(
                begin_ns=10 * _DAY_NS,
                end_ns=11 * _DAY_NS,
                categories=[
                    admin_pb2.Category(name="productive", time_ns=990 * _NS),
                    admin_pb2.Category(name="ckpt.stall.persist", time_ns=_NS),
                    admin_pb2.Category(name="inc.init", time_ns=8 * _NS),
                    admin_pb2.Category(name="of.tomorrow", time_ns=_NS),
                ],
            )
        ]
    )
    told = [admin_pb2.Incident(incident="t.1", onset_ns=10 * _DAY_NS, cause="node")]
    incidents = incidents_of([], told, by_nodes=True)
    found = account_of_days("All jobs", ledger, Range(0, 20 * _DAY_NS), Told(incidents))
    assert dict(found.facts) == {
        "between failures, on average": "1 d",
        "used of what may be lost for 99.5 %": "200.0 %",
    }
    assert dict(found.figures)["what each failure may cost to hold 99.5 %"].startswith("4.0 s")
    ratios = {one.name: one.value for one in found.ratios}
    assert ratios["Baidu"] == pytest.approx(1 - 9 / 999)
    assert "Meta" not in ratios
