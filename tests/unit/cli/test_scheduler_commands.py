"""Schedulers on the command line: the drivers, a node at each scheduler, and the kill switch."""

import io
import json

import pytest

from everstep_cli.commands.session import AdminSession
from everstep_cli.main import run_command, screen
from fakes import cli_schedulers
from fakes.cli_admin import NOW_NS, FakeAdmin


def call(*arguments: str, admin: FakeAdmin | None = None) -> tuple[int, str]:
    """Run a command; return its exit code and what it drew, a line each."""
    drawn = io.StringIO()
    session = AdminSession((admin or FakeAdmin()).connect, screen(drawn, 160), lambda: NOW_NS)
    return run_command(session, arguments), drawn.getvalue()


def rows(drawn: str, *columns: str) -> list[list[str]]:
    """Return the cells of each row of the table with these columns, its words as they stand."""
    lines = drawn.splitlines()
    head = next(line for line in lines if all(column in line for column in columns))
    places = [head.index(column) for column in columns]
    below = [line for line in lines[lines.index(head) + 1 :] if line.strip(" ─━")]
    ends = [*places[1:], 200]
    return [[line[a:b].strip() for a, b in zip(places, ends, strict=True)] for line in below]


def test_each_driver_is_a_row_with_the_age_of_its_reading_and_what_waits() -> None:
    _, drawn = call("drivers")
    found = rows(drawn, "driver", "read", "waiting", "trouble")
    assert [row[1:] for row in found] == [
        ["not yet", "none", "none; 2 failed calls before"],
        [
            "12 s ago",
            "node-[2-3], for up to 1 m 35 s",
            "3 failed calls in a row: slurmctld does not answer",
        ],
    ]
    # Nodes, those withheld for Everstep, and those withheld for others.
    assert [row[0].split() for row in found] == [
        ["kubernetes", "1", "0", "0"],
        ["slurm", "4", "1", "2"],
    ]


def test_a_pause_of_drivers_stands_above_their_list_with_its_age_and_its_end() -> None:
    admin = FakeAdmin()
    admin.drivers_paused = "ann: upgrade"
    _, drawn = call("drivers", admin=admin)
    assert drawn.splitlines()[:2] == [
        "No scheduler is told anything, for 1 h 0 m: ann: upgrade",
        "To go on: everstep resume --drivers",
    ]


def test_a_controller_without_drivers_says_where_to_read_about_them() -> None:
    admin = FakeAdmin()
    admin.schedulers = []
    code, drawn = call("drivers", admin=admin)
    assert code == 0
    assert drawn.startswith("No driver is configured: no scheduler is told anything (docs/")


def test_drivers_as_json_have_no_age_of_a_reading_that_there_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call("drivers", "--json")[0] == 0
    kubernetes, slurm = json.loads(capsys.readouterr().out)["drivers"]
    assert slurm["age_s"] == 12.4
    assert kubernetes["age_s"] is None


def test_a_node_shows_how_each_scheduler_has_it_and_since_when_that_is_known() -> None:
    admin = FakeAdmin()
    admin.views = cli_schedulers.VIEWS
    _, drawn = call("node", "node-1", admin=admin)
    below = drawn[drawn.index("schedulers") :]
    found = rows(below, "driver", "state", "work", "withheld", "as of", "told")[:4]
    assert found == [
        ["command", "idle", "none told", "for Everstep: automation: Xid 79", "0 s ago", "yes"],
        ["kubernetes", "Ready", "ml/llama-0 ml/llama-1", "by others: ann: new cables", "3 s ago",
         "yes"],
        ["slurm", "not told", "none told", "no", "-", "not yet, for 1 m 10 s"],
        ["other", "mixed", "none told", "no", "1 m 1 s ago", "no: its groups name other drivers"],
    ]  # fmt: skip


def test_an_isolated_node_of_which_a_scheduler_is_not_told_yet_says_so() -> None:
    admin = FakeAdmin()
    admin.views = cli_schedulers.VIEWS
    _, drawn = call("isolate", "node-1", "--reason", "fans", admin=admin)
    assert "Scheduler of driver slurm: not told yet; 'everstep drivers' shows when." in drawn
    assert "driver command" not in drawn


@pytest.mark.parametrize(("waiting", "told"), [(0, "0 nodes"), (1, "1 node"), (7, "7 nodes")])
def test_the_kill_switch_says_what_waits_and_how_to_end_it(waiting: int, told: str) -> None:
    admin = FakeAdmin()
    admin.waiting_nodes = waiting
    code, drawn = call("pause", "--drivers", "--reason", "upgrade", admin=admin)
    assert code == 0
    assert admin.told == [("pause drivers", "upgrade")]
    assert drawn.splitlines() == [
        "No scheduler is told anything: ann: upgrade.",
        f"{told} would be told of now; to go on: everstep resume --drivers",
    ]


def test_the_end_of_the_pause_says_how_many_nodes_waited() -> None:
    admin = FakeAdmin()
    admin.drivers_paused = "ann: upgrade"
    admin.waiting_nodes = 2
    assert call("resume", "--drivers", admin=admin)[1].splitlines() == [
        "Schedulers are read, and told of what differs there.",
        "2 nodes waited for that; 'everstep drivers' shows how far it is.",
    ]
    assert admin.told == [("resume drivers",)]
    admin.waiting_nodes = 0
    assert len(call("resume", "--drivers", admin=admin)[1].splitlines()) == 1


def test_the_kill_switch_needs_no_reason() -> None:
    """Whoever throws it at night has no time for a form."""
    admin = FakeAdmin()
    assert call("pause", "--drivers", admin=admin)[0] == 0
    assert admin.told == [("pause drivers", "")]


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_the_kill_switch_is_for_all_nodes_and_says_what_is_for_some(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = FakeAdmin()
    assert call(command, "node-1", "--drivers", admin=admin)[0] == 2
    assert admin.told == []
    assert "give them a group without drivers (docs/groups.md)" in " ".join(
        capsys.readouterr().err.split()
    )


@pytest.mark.parametrize("command", [["nodes"], ["version"], ["drivers"]])
def test_the_pause_of_drivers_is_said_by_whatever_people_look_at(command: list[str]) -> None:
    admin = FakeAdmin()
    assert "upgrade" not in call(*command, admin=admin)[1]
    admin.drivers_paused = "ann: upgrade"
    assert "o scheduler is told anything" in call(*command, admin=admin)[1]


def test_the_pause_of_automation_does_not_pause_drivers() -> None:
    admin = FakeAdmin()
    assert call("pause", "--reason", "switches", admin=admin)[0] == 0
    assert admin.told == [("pause", "", "switches")]
    assert admin.drivers_paused == ""
