"""A benchmark that is ended in its middle ends all that it has started, and tells what it has."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from harness.processes import ROOT

from fakes.waits import wait_until

pytestmark = pytest.mark.timeout(180)
_PATIENCE_S = 60.0
# A benchmark whose part starts a controller, an agent, and a process of another session that
# nobody ends; one row is there by then.
_PART = """
import subprocess, sys, tempfile, time
from pathlib import Path
from harness.daemons import agent_command, controller_command
from harness.processes import free_port, running, wait_for_port
from harness.session import Benchmark, Part, run
from harness.table import row

def measure(_):
    yield row("before", [1.0], "s")
    with tempfile.TemporaryDirectory() as name:
        folder, port, metrics = Path(name), free_port(), free_port()
        with (
            running(controller_command(folder, port)) as controller,
            running(agent_command(folder, port, metrics)) as agent,
        ):
            wait_for_port(port, controller)
            wait_for_port(metrics, agent)
            subprocess.run(["setsid", "--fork", "sleep", "600"], check=True)
            Path(sys.argv[1]).touch()
            time.sleep(600)

sys.exit(run(Benchmark(about="", parts=[Part("part", 600.0, measure)]), "test", ["--json"]))
"""


@contextlib.contextmanager
def _started(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    environ = os.environ | {"PYTHONPATH": f"{ROOT / 'bench'}:{ROOT / 'tests'}"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _below(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def _line(process: psutil.Process) -> str:
    """Return the command line of a process; "" of one that has ended meanwhile."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _left(before: list[psutil.Process]) -> list[str]:
    found = []
    for one in before:
        with contextlib.suppress(psutil.Error):
            if one.is_running() and one.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(one.cmdline()))
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_daemons_and_orphans_end_with_it_and_what_was_measured_is_printed(
    tmp_path: Path, number: signal.Signals
) -> None:
    ready = tmp_path / "ready"
    with _started([sys.executable, "-P", "-c", _PART, str(ready)]) as process:
        wait_until(ready.exists)
        before = _below(process)
        names = " ".join(map(_line, before))
        assert all(word in names for word in ("controller.main", "agent.main", "sleep"))
        process.send_signal(number)
        out, _ = process.communicate(timeout=_PATIENCE_S)
    assert process.returncode == 128 + number
    assert _left(before) == []
    assert [one["name"] for one in json.loads(out)] == ["before"]


def test_the_benchmark_of_the_agent_leaves_nothing_when_it_is_ended() -> None:
    command = [sys.executable, str(ROOT / "bench"), "agent", "--only", "xid", "--faults", "1000"]
    with _started(command) as process:
        wait_until(lambda: any("agent.main" in _line(one) for one in _below(process)))
        before = _below(process)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=_PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM
    assert _left(before) == []
    assert "1 of 1, xid; 0:00 gone, about" in told
