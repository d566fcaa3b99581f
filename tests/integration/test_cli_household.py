"""The demo's processes: whatever ends the demo, its reaper leaves nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from everstep_cli.demo import reaper
from everstep_cli.demo.processes import OwnedProcesses
from everstep_cli.demo.reaper import MARK, Identity, identify
from fakes.waits import wait_until

# A child that starts a grandchild, tells its id, and ignores all that can be ignored.
_FAMILY = """\
import signal, subprocess, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "300"], start_new_session=True)
print(child.pid, flush=True)
child.wait()
"""

# A demo that has a family and then waits to be ended.
_DEMO = f"""\
import os, sys, time
from pathlib import Path
from everstep_cli.demo.processes import OwnedProcesses
folder = Path(sys.argv[1])
owned = OwnedProcesses(folder, keep=False)
owned.start("family", [sys.executable, "-c", {_FAMILY!r}], os.environ)
while len(owned.below(*owned.children)) < 2:
    time.sleep(0.02)
owned.record_descendants()
print("ready", flush=True)
time.sleep(300)
"""


def marked(folder: Path) -> list[int]:
    """Return the living processes that belong to a demo."""
    return [p for p in reaper.parents() if reaper.environment(p).get(MARK) == str(folder)]


def test_closing_a_household_kills_children_and_grandchildren(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    owned = OwnedProcesses(folder, keep=False)
    child = owned.start("family", [sys.executable, "-c", _FAMILY], os.environ)
    wait_until(lambda: len(owned.below(child)) == 2)
    family = owned.below(child)
    owned.close()
    assert [identify(process.pid) for process in family] == [None, None]
    assert not folder.exists()


def test_a_folder_that_is_to_be_kept_stays(tmp_path: Path) -> None:
    owned = OwnedProcesses(tmp_path, keep=True)
    child = owned.start("echo", ["echo", "kept"], os.environ)
    wait_until(lambda: child.exit_code is not None)
    owned.close()
    assert child.last_lines() == "kept"
    assert marked(tmp_path) == []


@pytest.mark.parametrize("deadly", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_killed_leaves_neither_process_nor_folder(
    tmp_path: Path, deadly: signal.Signals
) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(
        [sys.executable, "-c", _DEMO, str(folder)], stdout=subprocess.PIPE, env=environ
    ) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline() == b"ready\n"
        # One that is about to run its program has no environment for a moment.
        wait_until(lambda: len(marked(folder)) == 2)
        demo.send_signal(deadly)
        demo.wait(30)
    wait_until(lambda: not marked(folder) and not folder.exists())


def test_a_process_that_took_over_an_old_id_is_not_killed() -> None:
    with subprocess.Popen(["sleep", "300"]) as bystander:
        known = identify(bystander.pid)
        assert known is not None
        assert not reaper.kill(Identity(known.pid, known.start - 1))
        assert identify(bystander.pid) == known
        assert reaper.kill(known)
        assert bystander.wait(30) == -signal.SIGKILL
