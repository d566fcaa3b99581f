"""The real torchrun with Everstep's rendezvous, beside an agent whose controller is the test."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from everstep.hang_command import local_ranks
from everstep_common.launcher_messages import End, Join, Start, Started, Stop
from everstep_common.reports import GenerationFinished, GenerationStopped, LauncherLeft, RankExited
from fakes.waits import wait_until
from integration.trainer_agent import TrainerAgent, Vault
from integration.trainer_job import environment
from with_torch.torchrun_nodes import advertise, torchrun

T = TypeVar("T")
# Says what it was told, and waits for what the test makes of it.
_RANK = """
mkdir -p "$OUT/$EVERSTEP_GENERATION"
env > "$OUT/$EVERSTEP_GENERATION/$RANK.part"
mv "$OUT/$EVERSTEP_GENERATION/$RANK.part" "$OUT/$EVERSTEP_GENERATION/$RANK"
until [ -e "$OUT/go" ]; do sleep 0.05; done
exit $(cat "$OUT/go")
"""


@dataclass(slots=True)
class UnderTorchrun:
    """A torchrun that has joined; the test plays the controller."""

    folder: Path
    agent: TrainerAgent
    process: subprocess.Popen[str]
    port: int

    def start(
        self, generation: int, restore_step: int | None = None, nodes: int = 1
    ) -> dict[int, int]:
        """Start two ranks; return their process ids."""
        self.order(generation, restore_step, nodes)
        started = self.expect(Started)
        assert started.generation == generation
        return {process.rank: process.pid for process in started.processes}

    def order(self, generation: int, restore_step: int | None = None, nodes: int = 1) -> None:
        """Tell torchrun to start two ranks, of the first node."""
        start = Start(
            generation=generation,
            node_rank=0,
            node_count=nodes,
            first_rank=0,
            processes=2,
            world_size=2 * nodes,
            master_address="127.0.0.1",
            master_port=self.port,
            restore_step=restore_step,
            reason="a test",
        )
        self.agent.tell_launcher(start)

    def stopped(self, generation: int) -> None:
        """Stop a generation."""
        self.agent.tell_launcher(Stop(generation, 20.0, "a test"))
        stopped = self.expect(GenerationStopped)
        assert stopped.generation == generation
        assert stopped.free_port != self.port
        self.port = stopped.free_port

    def expect(self, kind: type[T]) -> T:
        """Return what torchrun says next."""
        message = self.agent.expect(kind, 60.0)
        assert isinstance(message, kind)
        return message

    def environ(self, generation: int, rank: int) -> dict[str, str]:
        """Return what a rank was told."""
        path = self.folder / str(generation) / str(rank)
        wait_until(path.exists)
        pairs = (line.partition("=") for line in path.read_text().splitlines())
        return {name: value for name, _, value in pairs}

    def go(self, code: int) -> None:
        """Let the ranks end with an exit code."""
        draft = self.folder / "draft"
        draft.write_text(str(code))
        draft.rename(self.folder / "go")

    def end(self, *, succeeded: bool) -> tuple[int, str]:
        """End the job; return torchrun's exit code and what it said."""
        self.agent.tell_launcher(End(succeeded, "a test"))
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


def test_torchrun_starts_the_plans_ranks_and_ends_with_the_job(tmp_path: Path) -> None:
    with _joined(tmp_path) as job:
        job.start(1)
        told = [job.environ(1, rank) for rank in (0, 1)]
        assert [one["WORLD_SIZE"] for one in told] == ["2", "2"]
        assert {one["MASTER_PORT"] for one in told} == {str(job.port)}
        assert {one["EVERSTEP_RESTORE_STEP"] for one in told} == {"none"}
        assert {one["EVERSTEP_TOKEN"] for one in told} == {job.agent.vault.token}
        assert not any("EVERSTEP_JOB_TOKEN" in one for one in told)
        job.go(0)
        assert job.expect(GenerationFinished).generation == 1
        assert job.process.poll() is None, "left before the job was over"
        assert job.end(succeeded=True)[0] == 0


@pytest.mark.long
def test_an_order_to_stop_ends_the_ranks_and_uses_up_none_of_torchruns_restarts(
    tmp_path: Path,
) -> None:
    with _joined(tmp_path, restarts=0) as job:
        for generation in (1, 2, 3):
            ranks = job.start(generation, restore_step=7)
            assert job.environ(generation, 0)["EVERSTEP_RESTORE_STEP"] == "7"
            assert job.environ(generation, 1)["TORCHELASTIC_RESTART_COUNT"] == "0"
            job.stopped(generation)
            assert not [pid for pid in ranks.values() if Path(f"/proc/{pid}").exists()]
        job.start(4)
        job.go(0)
        job.expect(GenerationFinished)
        assert job.end(succeeded=True)[0] == 0


def test_a_killed_rank_is_told_with_its_signal_and_the_next_generation_comes(
    tmp_path: Path,
) -> None:
    with _joined(tmp_path, restarts=1) as job:
        ranks = job.start(1)
        os.kill(ranks[1], signal.SIGKILL)
        exited = job.expect(RankExited)
        assert (exited.rank, exited.signal, exited.kind) == (1, signal.SIGKILL, "killed")
        job.stopped(1)
        job.start(2)
        job.go(0)
        job.expect(GenerationFinished)
        assert job.end(succeeded=True)[0] == 0


@pytest.mark.long
def test_when_torchrun_has_no_restart_left_the_job_is_told_so(tmp_path: Path) -> None:
    with _joined(tmp_path, restarts=0) as job:
        job.start(1)
        job.go(3)
        assert job.expect(RankExited).exit_code == 3
        code, errors = job.end(succeeded=False)
        assert code == 1
        assert "job test failed: a test" in errors


@pytest.mark.long
def test_ctrl_c_ends_the_job(tmp_path: Path) -> None:
    with _joined(tmp_path) as job:
        ranks = job.start(1)
        job.process.send_signal(signal.SIGTERM)
        assert "user" in job.expect(LauncherLeft).reason
        job.process.communicate(timeout=60)
        assert job.process.returncode != 0
        assert not [pid for pid in ranks.values() if Path(f"/proc/{pid}").exists()]


def test_a_signal_before_anything_was_started_ends_the_job_with_a_word(tmp_path: Path) -> None:
    with _joined(tmp_path) as job:
        wait_until(lambda: _heeds(job.process.pid, signal.SIGTERM))
        job.process.send_signal(signal.SIGTERM)
        assert "user" in job.expect(LauncherLeft).reason
        job.process.communicate(timeout=60)
        assert job.process.returncode != 0


def test_ranks_that_had_ended_well_are_started_again_by_a_new_torchrun_in_its_place(
    tmp_path: Path,
) -> None:
    with _joined(tmp_path) as job:
        job.start(1)
        job.go(0)
        assert job.expect(GenerationFinished).generation == 1
        job.stopped(1)
        (tmp_path / "go").unlink()
        job.order(2, restore_step=7)
        join = job.expect(Join)
        assert (join.job, join.running_generation) == ("test", 0)
        # The other nodes of the plan have been told where they meet.
        assert join.free_port == job.port
        assert len(job.start(2, restore_step=7)) == 2
        assert job.environ(2, 0)["EVERSTEP_RESTORE_STEP"] == "7"
        assert "EVERSTEP_TORCHRUN_KEPT" not in job.environ(2, 0)
        job.go(0)
        assert job.expect(GenerationFinished).generation == 2
        code, errors = job.end(succeeded=True)
        assert code == 0, errors
        assert "torchrun starts again for generation 2" in errors


def test_a_job_that_fails_when_ranks_here_had_ended_well_ends_torchrun_at_once(
    tmp_path: Path,
) -> None:
    with _joined(tmp_path) as job:
        # Of two nodes: torchrun would wait for the other one's ranks at its own barrier.
        job.start(1, nodes=2)
        job.go(0)
        assert job.expect(GenerationFinished).generation == 1
        code, errors = job.end(succeeded=False)
        assert code == 1
        assert "job test failed: a test" in errors


@pytest.mark.long
def test_a_job_that_fails_elsewhere_ends_torchrun_with_the_reason(tmp_path: Path) -> None:
    with _joined(tmp_path) as job:
        job.start(1)
        code, errors = job.end(succeeded=False)
        assert code == 1
        assert "job test failed: a test" in errors


@pytest.mark.long
def test_a_spare_that_was_never_needed_ends_well(tmp_path: Path) -> None:
    with _joined(tmp_path) as job:
        code, errors = job.end(succeeded=True)
        assert code == 0, errors


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "job", "sentence"),
    [((), "none", "--rdzv-id NAME"), (("--rdzv-conf", "persit=/x"), "test", "persit")],
)
def test_what_cannot_be_used_is_said_at_once(
    options: tuple[str, ...], job: str, sentence: str, tmp_path: Path
) -> None:
    line = [*torchrun(tmp_path / "no.sock", "1", *options, job=job), "true"]
    ended = _start(tmp_path, line)
    _, errors = ended.communicate(timeout=60)
    assert ended.returncode == 1
    assert sentence in errors.splitlines()[-1]


@contextmanager
def _joined(folder: Path, restarts: int = 3) -> Iterator[UnderTorchrun]:
    path, vault = folder / "agent.sock", Vault()
    agent = TrainerAgent(path, vault)
    options = ("--nproc-per-node", "2", "--max-restarts", str(restarts))
    line = [*torchrun(path, "1:2", *options, job="test"), "sh", "-c", _RANK]
    process = _start(folder, line)
    try:
        join = agent.expect(Join, 60.0)
        assert isinstance(join, Join)
        assert (join.job, join.processes_per_node, join.restarts_max) == ("test", 2, restarts)
        assert (join.nodes_min, join.nodes_max) == (1, 2)
        yield UnderTorchrun(folder, agent, process, join.free_port)
    finally:
        (folder / "go").write_text("0")
        process.kill()
        process.communicate()
        agent.close()
        vault.close()


def _start(folder: Path, line: list[str]) -> "subprocess.Popen[str]":
    environ = environment(EVERSTEP_JOB_TOKEN=Vault().token, OUT=str(folder))
    environ["PYTHONPATH"] += os.pathsep + str(advertise(folder))
    return subprocess.Popen(
        line, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _heeds(pid: int, number: signal.Signals) -> bool:
    """Return whether a process catches a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (number - 1) & 1)


def test_ranks_of_torchrun_can_be_read_while_they_hang(tmp_path: Path) -> None:
    with _joined(tmp_path) as job:
        pids = job.start(1)
        told = job.environ(1, 0)
        folder = Path(told["EVERSTEP_RANK_FILES"])
        assert folder.stat().st_mode & 0o777 == 0o700
        assert told["EVERSTEP_RANK_TRACER"] == str(job.process.pid)
        assert told["TORCH_FR_DUMP_TEMP_FILE"] == f"{folder}/dump-"
        ranks = {one.rank: one.pid for one in local_ranks() if one.folder == str(folder)}
        assert ranks == pids
        # What they inherit does not grow from one generation to the next.
        job.stopped(1)
        job.start(2)
        assert job.environ(2, 0)["PYTHONPATH"] == told["PYTHONPATH"]
        job.go(0)
        assert job.expect(GenerationFinished).generation == 2
        assert job.end(succeeded=True)[0] == 0
    assert not folder.exists()
