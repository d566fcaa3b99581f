"""`everstep report`: what it asks for, what it writes, and what it says to a wrong line."""

import io
from pathlib import Path

import pytest

from everstep_cli.commands.session import AdminSession
from everstep_cli.main import run_command, screen
from everstep_cli.report.from_admin import acquitted, held_back
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
        (("demo", "--last", "3"), "--last is of the fleet"),
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
