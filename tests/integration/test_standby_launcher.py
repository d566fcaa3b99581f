"""The next generation's ranks are processes that waited. A real launcher; the test is its agent."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from everstep_common.launcher_messages import Settled
from everstep_common.reports import GenerationFinished
from fakes.waits import wait_until
from integration.test_trainer_launcher import alive
from integration.trainer_job import Job, joined_job

_SCRIPT = """
import os, sys
known = "decimal" in sys.modules
import everstep
run = everstep.init()
import decimal
os.environ["SET_BY_SCRIPT"] = "1"
run.step(0)
who = f"rank {run.rank} generation {run.generation}"
print(who, "knew", known, sys.argv[1:], flush=True)
if run.generation == 1:
    import time; time.sleep(600)
"""


@dataclass
class _Stage:
    """A job, and what its launcher shows."""

    job: Job
    screen: Path

    @property
    def shown(self) -> str:
        return self.screen.read_text(errors="replace")

    def waiting(self) -> set[int]:
        """Return the processes of the launcher that wait."""
        launcher = self.job.launcher.pid
        found = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
        return {int(pid) for pid in found if b"waiting.py" in _words(int(pid))}

    def until_ready(self, count: int) -> set[int]:
        """Return the standbys when there are so many."""
        wait_until(lambda: "(--standby none: no standbys)" in self.shown, 60.0)
        waiting = self.waiting()
        assert len(waiting) == count
        return waiting


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@contextmanager
def _stage(
    folder: Path, *command: str, options: Sequence[str] = (), modules: Sequence[Path] = ()
) -> Iterator[_Stage]:
    screen = folder / "screen"
    number = os.open(screen, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        with joined_job(folder, *command, options=options, screen=number, modules=modules) as job:
            yield _Stage(job, screen)
    finally:
        os.close(number)


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(_SCRIPT)
    return str(path)


def test_ranks_of_the_next_generation_have_imported_what_those_before_did(
    tmp_path: Path, script: str
) -> None:
    command = [sys.executable, script, "--lr", "1"]
    with _stage(tmp_path, *command, options=["--nproc-per-node", "2"]) as stage:
        first = stage.job.start(1, ranks=2)
        wait_until(lambda: stage.shown.count("generation 1") == 2)
        stage.job.agent.tell_launcher(Settled(1))
        waiting = stage.until_ready(2)
        stage.job.stop(1)
        assert not any(map(alive, first.values()))
        second = stage.job.start(2, ranks=2)
        stage.job.agent.expect(GenerationFinished)
        stage.job.end()
    assert set(second.values()) == waiting
    for rank in (0, 1):
        assert f"rank {rank} generation 1 knew False ['--lr', '1']" in stage.shown
        assert f"rank {rank} generation 2 knew True ['--lr', '1']" in stage.shown


def test_a_launcher_that_waits_prepares_for_its_first_generation(
    tmp_path: Path, script: str
) -> None:
    with _stage(tmp_path, sys.executable, script) as stage:
        waiting = stage.until_ready(1)
        assert set(stage.job.start(2, ranks=1).values()) == waiting
        stage.job.agent.expect(GenerationFinished)
        stage.job.end()
    assert "rank 0 generation 2" in stage.shown


def test_without_standbys_nothing_waits(tmp_path: Path, script: str) -> None:
    with _stage(tmp_path, sys.executable, script, options=["--standby", "none"]) as stage:
        stage.job.start(2, ranks=1)
        stage.job.agent.tell_launcher(Settled(2))
        stage.job.agent.expect(GenerationFinished)
        assert not stage.waiting()
        stage.job.end()
    assert "standby" not in stage.shown


def test_the_agent_hears_how_many_wait_and_what_they_take(tmp_path: Path, script: str) -> None:
    with _stage(tmp_path, sys.executable, script, options=["--nproc-per-node", "2"]) as stage:
        agent = stage.job.agent
        wait_until(lambda: (agent.standbys.ready, agent.standbys.making) == (2, 0), 60.0)
        assert agent.standbys.memory_bytes > 2 * 1024**2
        stage.job.start(2, ranks=2)
        wait_until(lambda: (agent.standbys.ready, agent.standbys.memory_bytes) == (0, 0))
        stage.job.agent.expect(GenerationFinished)
        stage.job.end()


def test_one_that_grows_while_it_imports_is_ended_before_it_is_done(
    tmp_path: Path, script: str
) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    growing = "import time; held = bytes(range(256)) * 2**20; time.sleep(600)"
    (modules / "growing.py").write_text(growing)
    options = ["--standby-memory", "100MiB", "--standby-imports", "growing"]
    with _stage(tmp_path, sys.executable, script, options=options, modules=[modules]) as stage:
        wait_until(lambda: "more than --standby-memory 100MiB" in stage.shown, 60.0)
        assert not stage.waiting()
        stage.job.start(2, ranks=1)
        stage.job.agent.expect(GenerationFinished)
        stage.job.end()


def test_one_that_takes_too_much_is_ended_and_the_job_goes_on(tmp_path: Path, script: str) -> None:
    options = ["--standby-memory", "1MiB"]
    with _stage(tmp_path, sys.executable, script, options=options) as stage:
        wait_until(lambda: "no warm standbys: one takes" in stage.shown)
        wait_until(lambda: stage.job.agent.standbys.ended.startswith("one takes"))
        assert stage.job.agent.standbys.ready == 0
        assert not stage.waiting()
        stage.job.start(2, ranks=1)
        stage.job.agent.expect(GenerationFinished)
        stage.job.end()


def test_one_that_dies_while_it_waits_is_told_and_the_job_goes_on(
    tmp_path: Path, script: str
) -> None:
    with _stage(tmp_path, sys.executable, script) as stage:
        (pid,) = stage.until_ready(1)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: "ended while it waited: signal 9" in stage.shown)
        stage.job.start(2, ranks=1)
        stage.job.agent.expect(GenerationFinished)
        stage.job.end()
    assert "rank 0 generation 2" in stage.shown


def test_they_end_with_their_launcher(tmp_path: Path, script: str) -> None:
    with _stage(tmp_path, sys.executable, script) as stage:
        waiting = stage.until_ready(1)
        stage.job.launcher.kill()
        wait_until(lambda: not any(map(alive, waiting)))


def test_a_command_that_is_not_python_is_started_as_it_is(tmp_path: Path) -> None:
    with _stage(tmp_path, "sh", "-c", "echo ran") as stage:
        stage.job.start(1, ranks=1)
        stage.job.agent.expect(GenerationFinished)
        stage.job.end()
    assert "[0] ran" in stage.shown
    assert "standby" not in stage.shown
