"""What a user is told at once, on the terminal where the command was typed."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.waits import wait_until
from integration.real_fleet import RealFleet, running_fleet
from integration.trainer_job import environment


def said(fleet: RealFleet, name: str) -> str:
    """Return what the launcher of a node has written."""
    return Path(fleet.launchers[name].log).read_text(errors="replace")


def typed(fleet: RealFleet, *line: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run a launcher on node-1 to its end."""
    path = str(fleet.folder / "node-1" / "run" / "agent.sock")
    return subprocess.run(
        [sys.executable, "-m", "everstep.entry", "run", "--socket", path, *line],
        env=environment(**environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def opened_for_writing(pipe: Path) -> int:
    """Return a pipe's end, once somebody reads the other one."""
    return wait_until(lambda: os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))


@pytest.fixture
def deaf(tmp_path: Path) -> Iterator[Path]:
    """A socket whose owner hangs up on everybody, as an agent does that cannot read a message."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "agent.sock"))
        server.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1 << 16)

        thread = threading.Thread(target=serve)
        thread.start()
        yield tmp_path / "agent.sock"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_an_agent_that_does_not_understand_the_launcher_is_told_of(deaf: Path) -> None:
    line = ["run", "--socket", str(deaf), "--job", "x", "--", "true"]
    result = subprocess.run(
        [sys.executable, "-m", "everstep.entry", *line],
        env=environment(EVERSTEP_JOB_TOKEN="t"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1
    assert "does not understand this launcher (everstep" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_command_that_is_interrupted_before_it_has_begun_ends_without_a_traceback(
    tmp_path: Path,
) -> None:
    token = tmp_path / "token"
    os.mkfifo(token, 0o600)
    line = ["run", "--job", "x", "--token-file", str(token), "--", "true"]
    command = subprocess.Popen(
        [sys.executable, "-m", "everstep.entry", *line],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    fd = opened_for_writing(token)  # it reads the token now, and gets none
    command.send_signal(signal.SIGINT)
    _, errors = command.communicate(timeout=30)
    os.close(fd)
    assert (command.returncode, errors) == (128 + signal.SIGINT, "")


@pytest.mark.timeout(180)
def test_a_job_waits_for_its_controller_and_says_so_and_nobody_takes_its_name() -> None:
    with running_fleet("node-1") as fleet:
        fleet.end_controller(signal.SIGKILL)
        fleet.launch(steps=2000, step_s=0.05)
        fleet.until(
            "a word", 40, lambda: "waiting for the controller at unix:" in said(fleet, "node-1")
        )
        other = typed(fleet, "--job", "train", "--", "true", EVERSTEP_JOB_TOKEN="another")
        assert other.returncode == 1
        assert "was begun with another token; give every launcher" in other.stderr
        same = typed(
            fleet, "--job", "train", "--token-file", str(fleet.folder / "token"), "--", "true"
        )
        assert same.returncode == 75  # EX_TEMPFAIL: its job may still end
        assert "; stop it first ('kill " in same.stderr
        assert "or choose another name with --job" in same.stderr

        fleet.start_controller()
        fleet.until("running", 60, lambda: fleet.job().state == "running")
        fleet.launchers["node-1"].process.send_signal(signal.SIGTERM)
        fleet.until("the end", 60, lambda: fleet.launchers["node-1"].process.poll() is not None)
        assert fleet.launchers["node-1"].process.returncode == 128 + signal.SIGTERM
