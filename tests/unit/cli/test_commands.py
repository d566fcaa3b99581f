"""Every command against a fleet that is a fake: what it prints, what it asks, how it ends."""

import io
import json
import re

import pytest

from everstep_cli.client.admin import AdminError
from everstep_cli.client.grpc_admin import make_printable
from everstep_cli.commands.next_command import _LISTED_BY, _LISTED_BY_OF, _MEANT, _OF_ONE
from everstep_cli.commands.session import AdminSession
from everstep_cli.main import everstep, run_command, screen
from everstep_cli.views import tables
from everstep_proto.generated import admin_pb2
from fakes.cli_admin import NOW_NS, FakeAdmin

ASKING = [
    ["nodes"],
    ["node", "node-1"],
    ["why", "node-2"],
    ["findings"],
    ["incidents"],
    ["incidents", "--open"],
    ["events"],
    ["jobs"],
    ["job", "demo"],
    ["job", "demo", "forget"],
    ["snapshots", "demo"],
    ["ettr", "demo"],
    ["isolate", "node-1", "--reason", "test"],
    ["drain", "node-1", "--reason", "test"],
    ["job", "demo", "restart", "--at-step", "9", "--reason", "test"],
    ["release", "node-1"],
    ["pause", "--reason", "test"],
    ["resume"],
    ["inject", "node-1", "xid:79"],
    ["inject", "node-1", "--list"],
    ["inject", "node-1", "--clear"],
    ["drivers"],
    ["policy"],
    ["policy", "node-1", "--what-if", "enforce"],
    ["pause", "--drivers"],
    ["resume", "--drivers"],
    ["version"],
]


def call(*arguments: str, admin: FakeAdmin | None = None, width: int = 80) -> tuple[int, str]:
    """Run a command; return its exit code and what it drew."""
    drawn = io.StringIO()
    console = screen(drawn, width)
    session = AdminSession((admin or FakeAdmin()).connect, console, lambda: NOW_NS)
    return run_command(session, arguments), drawn.getvalue()


@pytest.mark.parametrize("command", ASKING, ids=lambda command: command[0])
@pytest.mark.parametrize("width", [80, 120])
def test_every_view_fits_the_terminal(command: list[str], width: int) -> None:
    code, drawn = call(*command, width=width)
    assert code == 0
    assert drawn
    # These are wrapped by the terminal, so that a line can be copied, and found, whole.
    if command[0] not in ("events", "nodes"):
        assert all(len(line) <= width for line in drawn.splitlines())


@pytest.mark.parametrize("command", ASKING, ids=lambda command: command[0])
def test_every_answer_is_json_on_demand(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, drawn = call(*command, "--json")
    out = capsys.readouterr().out
    assert code == 0
    assert drawn == ""
    for document in out.splitlines() if command[0] == "events" else [out]:
        assert isinstance(json.loads(document), dict)


def test_the_list_of_nodes_tells_which_agents_are_not_let_in() -> None:
    _, drawn = call("nodes")
    assert "node-9, an agent refused for 1 m 10 s: node-9 (10.0.0.9) is of another" in drawn


def test_version_tells_the_cluster_of_the_controller() -> None:
    assert "c0ffee" in call("version")[1]


def test_a_step_that_does_not_exist_yet_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    call("job", "demo", "--json")
    job = json.loads(capsys.readouterr().out)
    assert job["summary"]["step"] == 130
    assert job["recoverable_step"] == 129
    assert "has_step" not in job["summary"]


def test_the_ledger_sums_to_the_wall_clock_and_defines_its_ratios() -> None:
    _, drawn = call("ettr", "demo")
    assert "100.000   100.00%  = wall clock" in drawn.replace("  100.00%", "   100.00%")
    assert "ETTR_time = (productive + slow.*) / wall" in drawn
    assert "ETTR_work = productive / wall" in drawn
    assert "A failure is an incident that nobody planned" in drawn
    assert "committed steps, up to the reference step time" in drawn
    assert "imports 1.400" in drawn


def test_an_unknown_name_is_a_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = call("node", "node-11")
    assert code == 2
    told = capsys.readouterr().err
    assert "did you mean 'node-1'?" in told
    assert len(told.splitlines()) == 1


def test_what_a_job_wrote_is_text_and_no_markup() -> None:
    drawn, text = io.StringIO(), "rank 3: [/x] [bold]no[/bold] :boom:"
    screen(drawn, 120).print(tables.facts([("because", text)]))
    assert text in drawn.getvalue()


def test_no_text_of_a_message_steers_the_terminal() -> None:
    finding = admin_pb2.FindingLine(message="\x1b[2Jgone\nand é")
    reply = admin_pb2.ListFindingsReply(findings=[finding])
    make_printable(reply)
    assert reply.findings[0].message == r"\x1b[2Jgone\nand é"


def test_a_controller_that_says_no_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = call("nodes", admin=FakeAdmin(AdminError("no controller answers; start one")))
    assert code == 1
    assert capsys.readouterr().err == "Error: no controller answers; start one\n"


def test_version_is_told_without_a_controller(capsys: pytest.CaptureFixture[str]) -> None:
    trouble = FakeAdmin(AdminError("no controller answers; start one"))
    assert call("version", admin=trouble)[0] == 0
    assert call("version", "--json", admin=trouble)[0] == 0
    assert json.loads(capsys.readouterr().out)["controller"] is None


def test_a_release_of_what_others_withhold_says_who_can_end_that() -> None:
    admin = FakeAdmin()
    assert "scheduler" not in call("release", "node-1", admin=admin)[1]
    call("release", "node-1", "--accept", "XidFatal,DiskGone", "--accept", "Odd", admin=admin)
    assert admin.told[-1] == ("release", "node-1", "", "XidFatal", "DiskGone", "Odd")
    admin.withheld_by_others = True
    code, drawn = call("release", "node-1", admin=admin)
    assert code == 0
    assert "Others withhold it at a scheduler (command: ann: cables)" in " ".join(drawn.split())


def test_isolating_needs_a_reason_and_passes_it_on(capsys: pytest.CaptureFixture[str]) -> None:
    admin = FakeAdmin()
    assert call("isolate", "node-1", admin=admin)[0] == 2
    code, drawn = call("isolate", "node-1", "--reason", "fan", admin=admin)
    assert code == 0
    assert admin.told == [("isolate", "node-1", "fan")]
    assert "takes no ranks: claimed by operator" in drawn
    assert "--reason" in capsys.readouterr().err


def test_pause_without_a_name_is_for_everything() -> None:
    admin = FakeAdmin()
    _, drawn = call("pause", "--reason", "switch upgrade", admin=admin)
    call("resume", "demo", admin=admin)
    assert admin.told == [("pause", "", "switch upgrade"), ("resume", "demo")]
    assert "paused for: fleet" in drawn


def test_the_controller_comes_from_the_option_or_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin = FakeAdmin()
    monkeypatch.setenv("EVERSTEP_CONTROLLER", "control:1")
    call("nodes", admin=admin)
    call("nodes", "--controller", "other:2", admin=admin)
    assert [c.address for c in admin.connections] == ["control:1", "other:2"]


@pytest.mark.parametrize(
    "options",
    [["--controller", "nowhere"], ["--tls-ca", "ca.pem"], ["--timeout", "0"], ["--timeout", "nan"]],
)
def test_a_connection_that_cannot_be_meant_is_refused_before_it_is_tried(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    admin = FakeAdmin()
    assert call("nodes", *options, admin=admin)[0] == 2
    assert admin.connections == []
    assert options[0].removesuffix("-ca") in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("completion", shell)[0] == 0
    assert "_EVERSTEP_COMPLETE" in capsys.readouterr().out


def test_a_shell_completes_the_names_of_nodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_EVERSTEP_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "everstep node node-")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit) as ended:
        call()
    assert ended.value.code in (0, None)
    assert "plain,node-1" in capsys.readouterr().out


def test_a_shell_completes_the_names_of_groups(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_EVERSTEP_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "everstep nodes --group ro")
    monkeypatch.setenv("COMP_CWORD", "3")
    with pytest.raises(SystemExit) as ended:
        call()
    assert ended.value.code in (0, None)
    assert capsys.readouterr().out.split() == ["plain,row-1"]


def test_an_injection_is_passed_on_with_its_time() -> None:
    admin = FakeAdmin()
    call("inject", "node-1", "xid:79", "--for", "2m", "--reason", "drill", admin=admin)
    call("inject", "node-1", "--clear", "node-1/inject/1", admin=admin)
    call("inject", "node-1", "--clear", admin=admin)
    assert admin.told == [
        ("inject", "node-1", "xid:79", "120", "drill"),
        ("clear", "node-1", "node-1/inject/1"),
        ("clear", "node-1", ""),
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["node-1"], 2, "give a SPEC, --list or --clear, and only one of them"),
        (["node-1", "xid:79", "--list"], 2, "only one of them"),
        (["node-1", "xid:79", "--for", "2h"], 2, "is too long: an injection ends after 1h at"),
        (["node-1", "xid:79", "--for", "soon"], 2, "is no length of time; say 60s, 5m or 1h"),
        (["node-11", "xid:79"], 2, "did you mean 'node-1'?"),
        (["node-1", "xyz:1"], 1, "node-1 refused: there is no injection 'xyz'"),
    ],
)
def test_an_injection_that_cannot_be_says_why(
    arguments: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("inject", *arguments)[0] == code
    assert told in capsys.readouterr().err


def test_the_examples_of_every_command_stand_in_lines_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in everstep.commands:
        call(command, "--help")
        assert "\\b" not in capsys.readouterr().out, command
    call("inject", "--help")
    assert "\n    xid:79[@PCI]  " in capsys.readouterr().out


def test_a_command_without_a_name_says_where_the_names_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call("why") == (2, "")
    assert "'everstep nodes' lists nodes, 'everstep jobs' jobs" in capsys.readouterr().err
    assert call("isolate", "node-1")[0] == 2
    assert "lists nodes" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ledger", "No such command 'ledger'; the ledger of a job is 'everstep ettr JOB'"),
        ("rules", "No such command 'rules'; 'everstep findings' lists what the rules have found"),
        ("stop llama", "'everstep job NAME stop' does that to a job"),
        ("kill llama", "'everstep job NAME stop' does that to a job"),
        ("read-log kern.log", "'everstep-agent read-log FILE' finds the faults of a node"),
        ("nodse", "'nodes'"),
        ("qwertz", "No such command 'qwertz'; 'everstep help' lists all commands"),
        ("maintenance end 4", "there is: everstep maintenance add, everstep maintenance"),
        ("maintenance cancel", "'everstep maintenance list' shows which windows there are"),
        ("snapshots", "'everstep jobs' lists jobs"),
        ("job", "'everstep jobs' lists jobs"),
        ("drain", "'everstep nodes' lists nodes"),
        ("jobs llama", "'everstep job llama' shows one job"),
        ("events gpu-7", "'everstep events --subject gpu-7' lists those of a node or job"),
        ("ettr llama qwen", "one job at a time, or none for the fleet"),
    ],
)
def test_a_command_line_that_is_wrong_says_what_to_type(
    line: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*line.split()) == (2, "")
    assert told in capsys.readouterr().err


def test_no_hint_leads_to_a_command_that_is_not_there() -> None:
    hints = [*_MEANT.values(), *_LISTED_BY.values(), *_LISTED_BY_OF.values(), *_OF_ONE.values()]
    named = {word for hint in hints for word in re.findall(r"'everstep (\w+)", hint)}
    assert named - {"help"} <= set(everstep.commands)
    assert not set(_MEANT) & set(everstep.commands)
    assert set(_OF_ONE) <= set(everstep.commands)


def test_an_option_before_the_command_is_told_where_it_belongs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _ = call("--controller", "unix:/c.sock", "jobs")
    assert code == 2
    assert "options stand after the command: everstep nodes --controller" in capsys.readouterr().err
