"""Jobs under a real Slurm: one launcher a node, as srun starts them, with an agent on each node."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from real.slurm_cluster import missing
from real.slurm_site import ONE_KERNEL, TIMEOUT_S, TRAINING, Site, running_site

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(missing()), reason=missing())]

_STEPS = 200
# A Slurm job by this name has this name in Everstep when it is the cluster's first.
_NAME = "digits"


def _uninterrupted(folder: Path) -> dict[int, str]:
    """Return the loss of every step of a run of one process, without any of all this."""
    losses = folder / "alone.tsv"
    line = [sys.executable, str(TRAINING), "--steps", str(_STEPS), "--losses", str(losses)]
    environ = {**os.environ, **ONE_KERNEL}
    subprocess.run(line, check=True, capture_output=True, timeout=120, env=environ)
    rows = (row.split("\t") for row in losses.read_text(encoding="ascii").splitlines())
    return {int(step): loss for step, loss in rows}


@pytest.mark.timeout(300)
def test_a_job_goes_on_within_its_allocation_when_a_node_is_lost(tmp_path: Path) -> None:
    with running_site(3) as context:
        line = context.step("--job", _NAME, "--nnodes", "2")
        user = context.submit("user", [line[0], "-N3", *line[1:]])
        context.fleet.until("a spare", TIMEOUT_S, lambda: bool(context.job(_NAME).spares))
        context.until_step(_NAME, 20)
        lost, other = context.job(_NAME).members
        (spare,) = context.job(_NAME).spares
        safe = context.recoverable(_NAME)
        context.lose(lost)
        context.fleet.until("the end", TIMEOUT_S, lambda: context.job(_NAME).state == "ended")
        assert {*context.job(_NAME).members} == {spare, other}
        # srun tells the worst code of its tasks; one that is lost with its node has none.
        assert user.process.wait(TIMEOUT_S) == 0, user.log.read_text()
        assert user.log.read_text().count(f"job {_NAME} succeeded") == 2
        assert context.fleet.losses() == _uninterrupted(tmp_path)
        assert sorted(context.fleet.first_steps()) == [1, 2]
        assert context.fleet.first_steps()[2] > safe


@pytest.mark.timeout(300)
def test_a_cancelled_job_goes_on_where_it_is_submitted_again(tmp_path: Path) -> None:
    with running_site(3) as context:
        _first(context, "--nnodes", "2")
        safe = context.recoverable(_NAME)
        context.slurm.run("scancel", *context.slurm.jobs())
        context.fleet.until("the end", TIMEOUT_S, lambda: context.job(_NAME).state == "ended")
        said = _second(context, "--nnodes", "1")
        assert "of the job that was cancelled" in said
        assert "from memory of node1, node2" in said
        assert context.fleet.first_steps()[2] > safe
        assert context.fleet.losses() == _uninterrupted(tmp_path)


@pytest.mark.timeout(300)
def test_a_job_whose_launchers_were_killed_goes_on_where_it_is_submitted_again(
    tmp_path: Path,
) -> None:
    with running_site(3) as context:
        # Nobody has said that it is over: the same job waits for launchers of the same options.
        options = ("--nnodes", "1:2")
        _first(context, *options)
        safe = context.recoverable(_NAME)
        (number,) = context.slurm.jobs()
        context.slurm.run("scancel", "--signal=KILL", f"{number}.0")
        assert "continues after step" in _second(context, *options)
        starts = context.fleet.first_steps()
        assert starts[max(starts)] > safe
        assert context.fleet.losses() == _uninterrupted(tmp_path)


# Who ends a job, and how: the whole of it, its step with one signal, the launchers alone.
_SENDS = {
    "scancel": ("scancel", "{job}"),
    "signal to the step": ("scancel", "--signal=TERM", "{job}.0"),
    "time limit": ("scontrol", "update", "jobid={job}", "TimeLimit=0"),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("send", _SENDS)
def test_a_job_that_is_ended_saves_its_last_step_and_goes_on_there(
    tmp_path: Path, send: str
) -> None:
    with running_site(2, lines=["KillWait=30"]) as context:
        # So few steps are snapshotted that none is when it ends, but the last one.
        line = context.step("--job", _NAME, "--nnodes", "2", steps=9_999_999, every=100_000)
        first = context.submit("first", [line[0], "-N2", *line[1:]])
        context.fleet.until("steps", TIMEOUT_S, lambda: len(context.fleet.losses()) > 150)
        (number,) = context.slurm.jobs()
        context.slurm.run(*(word.format(job=number) for word in _SENDS[send]))
        context.fleet.until("the end", TIMEOUT_S, lambda: context.job(_NAME).state == "ended")
        first.process.wait(TIMEOUT_S)
        said = first.log.read_text()
        assert said.count(f"job {_NAME} was ended by its user on node") == 2, said
        kept = re.findall(
            r"after step (\d+), which stays in memory of node1, node2 for 30 min", said
        )
        # The loss of a step is written before its snapshot: one more may be in hand.
        assert {max(context.fleet.losses()) - int(step) for step in kept} <= {0, 1}, said
        _goes_on_after(context, int(kept[0]))


def _goes_on_after(context: Site, last: int) -> None:
    """Submit the job once more, for some steps."""
    line = context.step("--job", _NAME, "--nnodes", "2", steps=last + 20)
    user = context.submit("second", [line[0], "-N2", *line[1:]])
    assert user.process.wait(TIMEOUT_S) == 0, user.log.read_text()
    said = user.log.read_text()
    assert f"continues after step {last} of the job that was cancelled" in said
    starts = context.fleet.first_steps()
    assert starts[max(starts)] == last + 1


def _first(context: Site, *options: str) -> None:
    """Submit a job on two of three nodes, and return when it has something to lose."""
    line = context.step("--job", _NAME, *options, steps=9_999_999)
    context.submit("first", [line[0], "-N2", "-w", "node1,node2", *line[1:]])
    context.until_step(_NAME, 20)


def _second(context: Site, *options: str) -> str:
    """Submit it on the third node; return what it said when it has succeeded."""
    line = context.step("--job", _NAME, *options)
    user = context.submit("second", [line[0], "-N1", "-w", "node3", *line[1:]])
    code = user.process.wait(TIMEOUT_S)
    said = user.log.read_text()
    assert code == 0, said
    return said


@pytest.mark.timeout(300)
def test_a_requeued_job_goes_on_on_other_nodes_without_a_name(tmp_path: Path) -> None:
    with running_site(3) as context:
        script = context.fleet.folder / "job.sh"
        line = shlex.join(context.step("--nnodes", "2"))
        script.write_text(f"#!/bin/sh\n#SBATCH --job-name={_NAME} --requeue -N2\nexec {line}\n")
        log = context.fleet.folder / "slurm.out"
        context.submit("user", ["sbatch", "--open-mode=append", "-o", str(log), str(script)])
        job = f"{_NAME}-1"  # Slurm's number; it stays the same
        context.until_step(job, 20)
        safe = context.recoverable(job)
        context.lose("node1")  # where the batch script runs, and srun
        context.fleet.until("the end", 2 * TIMEOUT_S, lambda: "succeeded" in log.read_text())
        # Cancelled by Slurm's SIGTERM; on a slow machine its SIGKILL may come first: the same job.
        said = log.read_text()
        assert "continues after step" in said, said
        assert "memory of" in said, said
        starts = context.fleet.first_steps()
        assert starts[max(starts)] > safe
        assert context.fleet.losses() == _uninterrupted(tmp_path)
