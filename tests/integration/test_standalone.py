"""`everstep run --standalone` where no agent runs: it brings its own, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_cli.demo import reaper
from fakes.waits import wait_until
from integration.real_fleet import running_fleet

pytestmark = pytest.mark.timeout(200)

_COUNTS = """
import os, sys, time
mark = sys.argv[1]
for step in range(60):
    time.sleep(0.05)
    print("step", step, flush=True)
    if step == 10 and mark and not os.path.exists(mark):
        open(mark, "w").close()
        os.kill(os.getpid(), 9)
"""
_SAVES = """
import time
import everstep, numpy
snapshots = everstep.snapshots({"w": numpy.zeros(9)})
for step in range(400):
    time.sleep(0.05)
    snapshots.snapshot(step)
    everstep.step(step)
    print("made", step, flush=True)
"""
# A rank with a child of its own, as data loaders are.
_SLEEPS = """
import subprocess, sys, time
subprocess.Popen(["sleep", "300"], start_new_session=True)
print("step 0", flush=True)
time.sleep(300)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder with a path short enough for the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="es") as name:
        (Path(name) / "tmp").mkdir()
        yield Path(name)


def start(folder: Path, *line: str, **environ: str) -> "subprocess.Popen[str]":
    """Start a launcher whose temporary files go below ``folder``."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    known = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "HOME": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-m", "everstep.entry", "run", "--standalone", *line],
        env={**known, "TMPDIR": str(folder / "tmp"), **environ},
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    )


def script(folder: Path, text: str) -> str:
    """Write a training script; return its name."""
    (folder / "train.py").write_text(text, encoding="utf-8")
    return "train.py"


def processes(folder: Path) -> dict[int, str]:
    """Return the command lines of all living processes that were started for this folder."""
    mark = str(folder / "tmp")
    found = [pid for pid in reaper.parents() if reaper.environment(pid).get("TMPDIR") == mark]
    return {pid: _line(pid) for pid in found}


def _line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def left(folder: Path) -> tuple[dict[int, str], list[Path]]:
    """Return what is left of a launcher: processes, and files."""
    return processes(folder), [*(folder / "tmp").iterdir(), *folder.glob(".local/**/*")]


def test_a_script_is_restarted_accounted_for_and_nothing_is_left(folder: Path) -> None:
    with start(folder, "--nproc-per-node", "2", script(folder, _COUNTS), "killed") as launcher:
        out, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 0, out
    assert "this job has its own" in out
    assert "was killed by SIGKILL" in out
    assert "1 failure cost" in out.splitlines()[-1]
    assert left(folder) == ({}, [])


def test_a_bucket_without_boto3_ends_it_at_once_and_says_what_to_install(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['boto3'] = None\n")
    path = os.pathsep.join([str(folder), *(entry for entry in sys.path if entry)])
    line = ("--persist", "s3://models/x", script(folder, _SAVES))
    with start(folder, *line, PYTHONPATH=path) as launcher:
        out, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 2
    assert out.startswith("everstep: --persist s3://models/x: storage in a bucket needs boto3; run")
    assert left(folder) == ({}, [])


def test_what_only_its_own_memory_has_is_not_promised_for_later(folder: Path) -> None:
    with start(folder, script(folder, _SAVES)) as launcher:
        assert launcher.stdout is not None
        assert any("made 20" in line for line in launcher.stdout)
        launcher.terminate()
        out, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 143, out
    assert "which was in memory only (--persist FOLDER keeps steps)" in out.splitlines()[-1]
    assert "stays in memory" not in out


def test_two_at_once_have_nothing_in_common(folder: Path) -> None:
    line = [script(folder, _COUNTS), ""]
    with start(folder, *line) as one, start(folder, *line) as other:
        told = [launcher.communicate(timeout=120)[0] for launcher in (one, other)]
    assert [one.returncode, other.returncode] == [0, 0], told
    assert all("nothing failed" in text.splitlines()[-1] for text in told)
    folders = {text.split("their logs are in ")[1].splitlines()[0] for text in told}
    assert len(folders) == 2
    assert left(folder) == ({}, [])


def test_a_second_start_that_takes_a_folder_over_says_so(folder: Path) -> None:
    line = ("--persist", str(folder / "kept"), script(folder, _SAVES))
    with start(folder, *line) as first:
        assert first.stdout is not None
        assert any("joined" in one for one in first.stdout)
        with start(folder, *line) as second:
            assert second.stdout is not None
            assert f"(process {first.pid}): this one takes over" in second.stdout.readline()
            second.kill()
        first.kill()
    wait_until(lambda: not processes(folder))


@pytest.mark.parametrize("deadly", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_launcher_that_is_ended_takes_everything_along(
    folder: Path, deadly: signal.Signals
) -> None:
    with start(folder, script(folder, _SLEEPS)) as launcher:
        seen = wait_until(lambda: any("sleep 300" in line for line in processes(folder).values()))
        assert seen, launcher.poll()
        # As Ctrl-C does: to the whole group.
        os.killpg(launcher.pid, deadly)
        launcher.communicate(timeout=60)
    assert launcher.returncode in (128 + deadly, -deadly)
    wait_until(lambda: left(folder) == ({}, []))


@pytest.mark.parametrize("deadly", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_one_that_is_ended_while_they_start_takes_everything_along(
    folder: Path, deadly: signal.Signals
) -> None:
    with start(folder, script(folder, _SLEEPS)) as launcher:
        started = wait_until(
            lambda: any("everstep_controller" in line for line in processes(folder).values())
        )
        assert started, launcher.poll()
        os.killpg(launcher.pid, deadly)
        out, _ = launcher.communicate(timeout=60)
    assert launcher.returncode != 0
    assert ("Ctrl-C ends it before the job has begun" in out) is (deadly == signal.SIGINT), out
    wait_until(lambda: left(folder) == ({}, []))


def test_a_controller_and_an_agent_that_are_killed_are_started_again(folder: Path) -> None:
    with start(folder, script(folder, _COUNTS), "") as launcher:
        killed: set[str] = set()
        assert launcher.stdout is not None
        for line in launcher.stdout:
            if "step 20" in line:
                for pid, command in processes(folder).items():
                    for name in ("controller.toml", "agent.toml"):
                        if name in command and " hold " not in command:
                            os.kill(pid, signal.SIGKILL)
                            killed.add(name)
        launcher.wait(60)
    assert killed == {"controller.toml", "agent.toml"}
    assert launcher.returncode == 0
    wait_until(lambda: left(folder) == ({}, []))


def test_services_that_do_not_start_are_told_of_and_only_their_logs_are_left(folder: Path) -> None:
    broken = folder / "broken"
    broken.mkdir()
    (broken / "msgspec.py").write_text("raise ImportError('msgspec is broken here')\n")
    path = os.pathsep.join([str(broken), *(entry for entry in sys.path if entry)])
    with start(folder, script(folder, _COUNTS), "", PYTHONPATH=path) as launcher:
        out, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 1
    assert "its controller did not start: ImportError: msgspec is broken here" in out
    logs = [Path(name) for name in out.rpartition("all that they said: less ")[2].split()]
    assert any("msgspec is broken here" in log.read_text(encoding="utf-8") for log in logs)
    running, files = left(folder)
    assert not running
    assert {path for one in files for path in one.iterdir()} == set(logs)


def test_an_agent_that_is_named_and_does_not_answer_is_not_replaced(folder: Path) -> None:
    nowhere = str(folder / "no.sock")
    line = ["--agent-wait", "2", script(folder, _COUNTS), ""]
    with start(folder, *line, EVERSTEP_SOCKET=nowhere) as launcher:
        out, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 75
    assert f"no agent answers at {nowhere}" in out


def test_an_agent_that_is_there_is_used(folder: Path) -> None:
    with running_fleet("node-0") as fleet:
        (folder / "everstep-agent").symlink_to(fleet.folder / "node-0" / "run")
        with start(folder, script(folder, _COUNTS), "", XDG_RUNTIME_DIR=str(folder)) as launcher:
            out, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 0, out
    assert "joined on node-0" in out
    assert "this job has its own" not in out
