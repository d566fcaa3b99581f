"""`everstep report`: what it asks for, what it writes, and what it says to a wrong line."""

import io
from pathlib import Path

import pytest

from everstep_cli.commands.session import AdminSession
from everstep_cli.main import run_command, screen
from everstep_cli.report.from_admin import (
    NoTimeError,
    Range,
    account_of_days,
    acquitted,
    held_back,
)
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
    assert capsys.readouterr().out.startswith(f"{path}: Job demo, 1 incident, ")
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
        (("--fleet", "--from", "2020-02-01"), "history has 400 days"),
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
    incidents = [admin_pb2.Incident(incident=f"t.{n}", onset_ns=n * _DAY_NS + 1) for n in (10, 11)]
    wanted = Range(11 * _DAY_NS, 13 * _DAY_NS)
    found = account_of_days("All jobs", days(100, 200, 300, 400), wanted, incidents, [])
    assert found.seconds == 500
    assert [one.id for one in found.incidents] == ["t.11"]
    assert (found.begin_ns, found.end_ns) == (11 * _DAY_NS, 13 * _DAY_NS)


def test_days_of_which_nothing_is_known_name_those_that_are() -> None:
    wanted = Range(2 * _DAY_NS, 3 * _DAY_NS)
    with pytest.raises(NoTimeError, match="there are days from 1970-01-11 to 1970-01-12"):
        account_of_days("All jobs", days(1, 2), wanted, [], [])
    with pytest.raises(NoTimeError, match="no job has had any time yet"):
        account_of_days("All jobs", days(), wanted, [], [])
