"""The end-to-end test: the demo itself, and that nothing is left of it however it ends."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from everstep_cli.demo import reaper
from everstep_cli.demo.reaper import MARK
from fakes.waits import wait_until

_COMMAND = [sys.executable, "-m", "everstep_cli.main", "demo"]


def start(folder: Path, *options: str) -> "subprocess.Popen[str]":
    """Start a demo whose temporary files go below ``folder``."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environ = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(folder), "COLUMNS": "120"}
    return subprocess.Popen(
        [*_COMMAND, *options],
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )


def marked(folder: Path) -> list[int]:
    """Return the living processes that belong to a demo below ``folder``."""
    marks = {pid: reaper.environment(pid).get(MARK, "") for pid in reaper.parents()}
    return [pid for pid, mark in marks.items() if mark.startswith(str(folder))]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder with a path short enough for the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="es") as name:
        yield Path(name)


@pytest.mark.timeout(300)
def test_the_demo_does_all_that_it_claims_and_leaves_nothing(folder: Path) -> None:
    with start(folder, "--json") as demo:
        out, err = demo.communicate(timeout=280)
    assert demo.returncode == 0, err
    report = json.loads(out)
    assert report["passed"] is True
    assert report["failures"] == []
    assert {claim["act"] for claim in report["claims"]} == {1, 2, 3, 4}
    plans = [(incident["plan"], incident["node"]) for incident in report["incidents"]]
    assert plans == [("in_place", "node-2"), ("spare", "node-3"), ("reform", "node-4")]
    assert all(incident["total_s"] > 0 for incident in report["incidents"])
    assert report["losses"]["identical"] is True
    assert sum(c["time_ns"] for c in report["ledger"]["categories"]) == report["ledger"]["wall_ns"]
    assert marked(folder) == []
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("deadly", [signal.SIGINT, signal.SIGKILL])
def test_a_demo_that_is_ended_early_leaves_nothing(folder: Path, deadly: signal.Signals) -> None:
    with start(folder, "--json") as demo:
        # Controller, five holders and agents, five launchers and their sweepers, the first ranks.
        wait_until(lambda: len(marked(folder)) >= 23, 120)
        demo.send_signal(deadly)
        demo.communicate(timeout=60)
    wait_until(lambda: not marked(folder) and not list(folder.iterdir()), 30)
    if deadly is signal.SIGINT:
        assert demo.returncode == 130


def test_a_demo_that_cannot_go_on_says_what_did_not_happen(folder: Path) -> None:
    with start(folder, "--json") as demo:
        wait_until(lambda: bool(controllers(folder)), 60)
        # While agents and launchers start, long before the end of the first act.
        wait_until(lambda: len(marked(folder)) >= 12, 60)
        for process in map(reaper.identify, controllers(folder)):
            assert process is not None
            reaper.kill(process)
        out, err = demo.communicate(timeout=60)
    assert demo.returncode == 1
    report = json.loads(out)
    assert report["passed"] is False
    assert "controller ended (-9)" in report["failures"][-1]
    assert "--keep DIR" in err
    assert marked(folder) == []
    assert list(folder.iterdir()) == []


def controllers(folder: Path) -> list[int]:
    """Return the controllers of demos below ``folder``."""
    return [pid for pid in marked(folder) if b"controller.toml" in command_line(pid)]


def command_line(pid: int) -> bytes:
    """Return the command line of a process; nothing when it has ended since it was listed."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.timeout(240)
def test_the_page_of_a_demo_is_open_while_it_runs_and_ends_with_it(folder: Path) -> None:
    with start(folder, "--page", "--json") as demo:
        assert demo.stderr is not None
        # The first line that it says is the address, unless it could not begin.
        said = demo.stderr.readline()
        assert "http://" in said, said + demo.stderr.read()
        address = said.split()[-1]
        browser = build_opener(HTTPCookieProcessor())
        told = browser.open(address, timeout=60).read().decode()
        assert 'href="/node/node-5"' in told
        with pytest.raises(HTTPError):
            browser.open(address, timeout=60)
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert marked(folder) == []
    assert list(folder.iterdir()) == []
