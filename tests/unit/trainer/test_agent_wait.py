"""Where a launcher waits for an agent that is not there yet, and where it does not."""

from pathlib import Path

import pytest

from everstep.launch.agent_wait import UNIT_FOLDERS, nobody_answers, waits_for_agent, why_expected
from everstep.launch.command_line.option_parser import UsageError
from everstep.launch.command_line.options import default_socket, parse_options

_NOWHERE = "/nowhere/agent.sock"


def expected(socket: str, folder: Path, **environ: str) -> str:
    return why_expected(socket, FileNotFoundError(), {"HOME": str(folder), **environ}, [folder])


def test_a_socket_that_the_user_may_not_use_is_not_waited_for(tmp_path: Path) -> None:
    socket = str(tmp_path / "agent.sock")
    assert why_expected(socket, ConnectionRefusedError())
    assert why_expected(socket, PermissionError()) == ""


def test_an_agent_is_expected_where_the_folder_of_its_socket_is(tmp_path: Path) -> None:
    assert str(tmp_path) in expected(f"{tmp_path}/agent.sock", tmp_path)


@pytest.mark.parametrize("socket", ["/agent.sock", "/tmp/agent.sock", "/run/agent.sock"])
def test_a_folder_that_is_there_without_an_agent_says_nothing(socket: str, tmp_path: Path) -> None:
    assert expected(socket, tmp_path) == ""


@pytest.mark.parametrize("user", [False, True])
def test_an_agent_is_expected_where_its_unit_is_installed(tmp_path: Path, user: bool) -> None:
    folder = tmp_path / ".config" / "systemd" / "user" if user else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "everstep-agent.service").touch()
    assert expected(_NOWHERE, tmp_path) == f"its unit is installed: {folder}/everstep-agent.service"


def test_the_packaged_unit_is_looked_for_where_systemd_looks() -> None:
    assert {"/etc/systemd/system", "/usr/lib/systemd/system"} <= set(map(str, UNIT_FOLDERS))


@pytest.mark.parametrize("variable", ["SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST"])
def test_an_agent_is_expected_where_a_scheduler_started_the_launcher(
    tmp_path: Path, variable: str
) -> None:
    assert expected(_NOWHERE, tmp_path, **{variable: "7"})
    assert expected(_NOWHERE, tmp_path) == ""


def test_the_words_name_the_agent_and_what_to_type_next() -> None:
    waits = waits_for_agent(_NOWHERE, "Slurm started this launcher", 60)
    assert waits.startswith(f"no agent answers at {_NOWHERE} yet; waiting up to 60 s for everstep-")
    refused = ConnectionRefusedError(111, "Connection refused")
    told = nobody_answers(_NOWHERE, refused, 60)
    assert f"{_NOWHERE} after 60 s (Connection refused)" in told
    assert "everstep run --standalone" in told
    assert "--standalone" not in nobody_answers(_NOWHERE, refused, under_torchrun=True)


def test_the_default_socket_is_in_the_folder_of_an_agent_that_is_to_come(tmp_path: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    (tmp_path / "everstep-agent").mkdir()
    assert default_socket(environ, _NOWHERE) == f"{tmp_path}/everstep-agent/agent.sock"
    assert default_socket({}, _NOWHERE) == _NOWHERE


@pytest.mark.parametrize("given", ["-1", "inf", "nan"])
def test_a_wait_that_is_no_time_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match="--agent-wait is "):
        parse_options(["--agent-wait", given, "--", "true"], {"PATH": "/bin:/usr/bin"})
