"""Jobs under a real Slurm: one launcher a node, as srun starts them, with an agent on each node."""

import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from everstep_cli.admin import AdminError
from everstep_cli.demo.processes import Child
from everstep_proto.generated import admin_pb2
from integration.real_fleet import RealFleet, running_fleet
from real.slurm_cluster import SlurmCluster, missing, running_cluster

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(missing()), reason=missing())]

_TIMEOUT_S = 90
_STEPS = 200
_TRAINING = Path(__file__).parents[2] / "examples" / "train_numpy.py"
_SRUN = ("srun", "--ntasks-per-node=1", "--no-kill", "--kill-on-bad-exit=0")
# A Slurm job by this name has this name in Everstep when it is the cluster's first.
_NAME = "digits"


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster whose nodes Slurm and Everstep both know."""

    fleet: RealFleet
    slurm: SlurmCluster

    def step(self, *options: str, steps: int = _STEPS) -> list[str]:
        """Return the line that trains on all nodes of an allocation: what a user types."""
        run = [*_SRUN, sys.executable, "-m", "everstep.entry", "run", *options]
        run += ["--nproc-per-node", "1", "--snapshot-every", "1"]
        run += ["--token-file", str(self.fleet.folder / "token"), "--"]
        script = f'exec "$@" --losses {self.fleet.folder}/losses/$EVERSTEP_GENERATION.tsv'
        train = [sys.executable, str(_TRAINING), "--steps", str(steps)]
        return [*run, "sh", "-c", script, "sh", *train, "--step-seconds-min", "0.02"]

    def submit(self, name: str, command: Sequence[str]) -> Child:
        """Type a command where users do; SLURM_NNODES and the like are its own business."""
        environ = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PYTHONUNBUFFERED": "1"}
        return self.slurm.submit(name, command, environ)

    def until_step(self, job: str, step: int) -> None:
        """Return when a step is recoverable that is not older."""
        self.fleet.until(f"step {step}", _TIMEOUT_S, lambda: self.recoverable(job) >= step)

    def job(self, name: str) -> admin_pb2.JobSummary:
        """Return a job as the controller tells it; an empty one before it knows it."""
        try:
            return self.fleet.admin.job(name).summary
        except AdminError:
            return admin_pb2.JobSummary()

    def lose(self, node: str) -> None:
        """Lose a node with its agent."""
        self.fleet.agents.pop(node).process.kill()
        self.slurm.lose(node)

    def recoverable(self, job: str) -> int:
        """Return the newest step that survives the loss of any node; -1 while there is none."""
        try:
            sheet = self.fleet.admin.job(job)
        except AdminError:
            return -1
        return sheet.recoverable_step if sheet.has_recoverable else -1


@contextmanager
def _site(count: int) -> Iterator[Site]:
    nodes = [f"node{number}" for number in range(1, count + 1)]
    with running_fleet(*nodes) as fleet:
        # All nodes share this machine's file system, so each is told of its own agent's socket.
        socket = f"{fleet.folder}/$SLURMD_NODENAME/run/agent.sock"
        prolog = f'#!/bin/sh\necho "export EVERSTEP_SOCKET={socket}"\n'
        with running_cluster(fleet.household, fleet.folder / "slurm", nodes, prolog) as slurm:
            yield Site(fleet, slurm)


def _uninterrupted(folder: Path) -> dict[int, str]:
    """Return the loss of every step of a run of one process, without any of all this."""
    losses = folder / "alone.tsv"
    line = [sys.executable, str(_TRAINING), "--steps", str(_STEPS), "--losses", str(losses)]
    subprocess.run(line, check=True, capture_output=True, timeout=120)
    rows = (row.split("\t") for row in losses.read_text(encoding="ascii").splitlines())
    return {int(step): loss for step, loss in rows}


@pytest.mark.timeout(300)
def test_a_job_goes_on_within_its_allocation_when_a_node_is_lost(tmp_path: Path) -> None:
    with _site(3) as site:
        line = site.step("--job", _NAME, "--nnodes", "2")
        user = site.submit("user", [line[0], "-N3", *line[1:]])
        site.fleet.until("a spare", _TIMEOUT_S, lambda: bool(site.job(_NAME).spares))
        site.until_step(_NAME, 20)
        lost, other = site.job(_NAME).members
        (spare,) = site.job(_NAME).spares
        safe = site.recoverable(_NAME)
        site.lose(lost)
        site.fleet.until("the end", _TIMEOUT_S, lambda: site.job(_NAME).state == "ended")
        assert {*site.job(_NAME).members} == {spare, other}
        # srun tells the worst code of its tasks; one that is lost with its node has none.
        assert user.process.wait(_TIMEOUT_S) == 0, user.log.read_text()
        assert user.log.read_text().count(f"job {_NAME} succeeded") == 2
        assert site.fleet.losses() == _uninterrupted(tmp_path)
        assert sorted(site.fleet.first_steps()) == [1, 2]
        assert site.fleet.first_steps()[2] > safe


@pytest.mark.timeout(300)
def test_a_cancelled_job_goes_on_where_it_is_submitted_again(tmp_path: Path) -> None:
    with _site(3) as site:
        _first(site, "--nnodes", "2")
        safe = site.recoverable(_NAME)
        site.slurm.run("scancel", *site.slurm.jobs())
        site.fleet.until("the end", _TIMEOUT_S, lambda: site.job(_NAME).state == "ended")
        said = _second(site, "--nnodes", "1")
        assert "of the job that was cancelled" in said
        assert "from memory of node1, node2" in said
        assert site.fleet.first_steps()[2] > safe
        assert site.fleet.losses() == _uninterrupted(tmp_path)


@pytest.mark.timeout(300)
def test_a_job_whose_launchers_were_killed_goes_on_where_it_is_submitted_again(
    tmp_path: Path,
) -> None:
    with _site(3) as site:
        # Nobody has said that it is over: the same job waits for launchers of the same options.
        options = ("--nnodes", "1:2")
        _first(site, *options)
        safe = site.recoverable(_NAME)
        (number,) = site.slurm.jobs()
        site.slurm.run("scancel", "--signal=KILL", f"{number}.0")
        assert "continues after step" in _second(site, *options)
        starts = site.fleet.first_steps()
        assert starts[max(starts)] > safe
        assert site.fleet.losses() == _uninterrupted(tmp_path)


def _first(site: Site, *options: str) -> None:
    """Submit a job on two of three nodes, and return when it has something to lose."""
    line = site.step("--job", _NAME, *options, steps=9_999_999)
    site.submit("first", [line[0], "-N2", "-w", "node1,node2", *line[1:]])
    site.until_step(_NAME, 20)


def _second(site: Site, *options: str) -> str:
    """Submit it on the third node; return what it said when it has succeeded."""
    line = site.step("--job", _NAME, *options)
    user = site.submit("second", [line[0], "-N1", "-w", "node3", *line[1:]])
    code = user.process.wait(_TIMEOUT_S)
    said = user.log.read_text()
    assert code == 0, said
    return said


@pytest.mark.timeout(300)
def test_a_requeued_job_goes_on_on_other_nodes_without_a_name(tmp_path: Path) -> None:
    with _site(3) as site:
        script = site.fleet.folder / "job.sh"
        line = shlex.join(site.step("--nnodes", "2"))
        script.write_text(f"#!/bin/sh\n#SBATCH --job-name={_NAME} --requeue -N2\nexec {line}\n")
        log = site.fleet.folder / "slurm.out"
        site.submit("user", ["sbatch", "--open-mode=append", "-o", str(log), str(script)])
        job = f"{_NAME}-1"  # Slurm's number; it stays the same
        site.until_step(job, 20)
        safe = site.recoverable(job)
        site.lose("node1")  # where the batch script runs, and srun
        site.fleet.until("the end", _TIMEOUT_S, lambda: "succeeded" in log.read_text())
        assert "cancelled" in log.read_text()
        assert "from memory of node2; --fresh" in log.read_text()
        starts = site.fleet.first_steps()
        assert starts[max(starts)] > safe
        assert site.fleet.losses() == _uninterrupted(tmp_path)
