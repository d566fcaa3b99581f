"""What can be asked and ordered about snapshots, and what a wrong command line is told."""

import io
import json

import pytest

from everstep_cli.client.admin import AdminError
from everstep_cli.commands.session import AdminSession
from everstep_cli.main import everstep, run_command, screen
from everstep_proto.generated import admin_pb2
from fakes.cli_admin import NOW_NS, FakeAdmin


def call(*arguments: str, admin: FakeAdmin | None = None) -> tuple[int, str]:
    """Run a command on a screen of 80 columns; return its exit code and what it drew."""
    drawn = io.StringIO()
    session = AdminSession((admin or FakeAdmin()).connect, screen(drawn, 80), lambda: NOW_NS)
    return run_command(session, arguments), drawn.getvalue()


def test_single_copies_are_chosen_by_step_and_node() -> None:
    _, of_step = call("snapshots", "demo", "--copies", "--step", "129")
    assert len(of_step.splitlines()) == 5
    _, of_node = call("snapshots", "demo", "--copies", "--node", "node-4")
    assert {line.split()[0] for line in of_node.splitlines()} == {"step", "129", "128"}


def test_single_copies_are_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, drawn = call("snapshots", "demo", "--copies", "--json")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (code, drawn) == (0, "")
    assert len(lines) == 5
    assert set(lines[0]) == {field.name for field in admin_pb2.CopyLine.DESCRIPTOR.fields}
    assert len(lines[0]["root_hash"]) == 32


@pytest.mark.parametrize("options", [["--step", "3"], ["--node", "node-1"]])
def test_a_filter_without_copies_says_what_is_missing(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("snapshots", "demo", *options)[0] == 2
    assert "give --copies" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["snapshots", "dmo"], ["snapshots", "dmo", "--copies"], ["job", "dmo", "forget"]]
)
def test_an_unknown_job_is_told_with_the_nearest_name(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, drawn = call(*command)
    assert (code, drawn) == (2, "")
    told = capsys.readouterr().err
    assert "did you mean 'demo'?" in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["forget", "demo"], "the name comes first: everstep job demo forget"),
        (["demo", "forgt"], "there is: everstep job demo forget"),
    ],
)
def test_a_job_command_that_cannot_be_meant_changes_nothing(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = FakeAdmin()
    assert call("job", *arguments, admin=admin)[0] == 2
    assert told in capsys.readouterr().err
    assert admin.told == []


def test_a_controller_that_forgets_nothing_is_exit_code_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call("job", "demo", "forget", admin=FakeAdmin(AdminError("demo is running")))[0] == 1
    assert capsys.readouterr().err == "Error: demo is running\n"


@pytest.mark.parametrize(
    ("words", "index", "offered"),
    [
        ("everstep snap", 1, "plain,snapshots"),
        ("everstep snapshots d", 2, "plain,demo"),
        ("everstep snapshots demo --node node-", 4, "plain,node-1"),
        ("everstep job demo f", 3, "plain,forget"),
    ],
)
def test_a_shell_completes_jobs_nodes_and_actions(
    words: str,
    index: int,
    offered: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("_EVERSTEP_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(index))
    with pytest.raises(SystemExit):
        call()
    assert offered in capsys.readouterr().out


def test_the_help_of_snapshots_explains_every_state_of_a_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "snapshots" in everstep.commands
    call("snapshots", "--help")
    told = capsys.readouterr().out
    for state in ("whole", "partial", "probation", "blacklisted", "abandoned"):
        assert f"\n    {state}  " in told


def test_a_choice_of_no_copy_says_so() -> None:
    assert call("snapshots", "demo", "--copies", "--step", "7") == (
        0,
        "No node holds such a copy.\n",
    )
