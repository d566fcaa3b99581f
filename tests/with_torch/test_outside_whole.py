"""What comes from outside to an unchanged script, in a real fleet: nobody is blamed for it."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest

from everstep_cli.client.admin import list_nodes
from integration.real_fleet import JOB, RealFleet, running_fleet

pytestmark = pytest.mark.timeout(600)
_PATIENCE_S = 120.0
_EVALUATES_S = 25.0
# Prints its steps. In its first generation it may evaluate on rank 0, or hang before all steps.
_SCRIPT = """
import os, pathlib, signal, sys, time
import torch
import torch.distributed as dist

how, steps, started = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
rank, first = int(os.environ["RANK"]), not started.exists()
dist.init_process_group("gloo")
total = torch.ones(4)
if first and rank == 1 and how in ("sleep", "stop"):
    started.touch()
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(600)
for step in range(steps):
    dist.all_reduce(total)
    if rank == 0:
        print(f"step {step}", flush=True)
    time.sleep(0.1)
    if how == "evaluate" and rank == 0 and step == steps // 2:
        started.touch()
        time.sleep(float(sys.argv[4]))
"""


@contextlib.contextmanager
def _training(
    how: str, steps: int, *nodes: str, core_lines: tuple[str, ...] = ()
) -> Iterator[RealFleet]:
    with running_fleet(*nodes, core_lines=core_lines) as fleet:
        script = fleet.folder / "script.py"
        script.write_text(_SCRIPT)
        command = [str(script), how, str(steps), str(fleet.folder / "started")]
        fleet.launch_script([*command, str(_EVALUATES_S)], nodes="2")
        yield fleet


def _steps_in(fleet: RealFleet, generation: int) -> bool:
    """Return whether a generation has made steps, more than those before it.

    What is frozen at the same step again is waited for; first steps are told late.
    """
    job = fleet.job()
    there = job.generation == generation and job.state == "running"
    return there and job.step >= 30 * (generation + 1)


def _ends_well(fleet: RealFleet) -> None:
    members = [fleet.launchers[name] for name in fleet.job().members]
    fleet.until("the end", _PATIENCE_S, lambda: all(one.exit_code == 0 for one in members))


def _owners(fleet: RealFleet) -> list[str]:
    return [claim.owner for node in list_nodes(fleet.admin).nodes for claim in node.claims]


def test_whoever_stops_a_rank_three_times_ends_no_job_and_takes_no_node() -> None:
    nodes, soon = ("node-1", "node-2", "node-3"), ("stall_timeout_s = 5.0",)
    with _training("train", 250, *nodes, core_lines=soon) as fleet:
        fleet.until("steps", _PATIENCE_S, lambda: _steps_in(fleet, 1))
        members = list(fleet.job().members)
        for generation in (1, 2, 3):
            _freeze(fleet, members[1], generation)
            assert list(fleet.job().members) == members, "no node is left for a stopped process"
        assert _owners(fleet) == []
        _ends_well(fleet)
        told = fleet.everstep("events", "--subject", JOB).stdout
        assert "neither the program nor the node" in told


def _freeze(fleet: RealFleet, node: str, generation: int) -> None:
    """Stop the rank of a node as a debugger does, and wait until the next one makes steps."""
    rank = fleet.rank(node)
    assert rank is not None
    os.kill(rank.pid, signal.SIGSTOP)
    fleet.until(f"after {generation}", _PATIENCE_S, lambda: _steps_in(fleet, generation + 1))


@pytest.mark.parametrize("when", ["long before", "meanwhile"])
def test_an_evaluation_is_not_ended_for_a_finding_of_a_gpu_that_no_rank_uses(when: str) -> None:
    """The fatal finding is of rank 0's node: older than the job, or while it stands still."""
    modes = ("hang_patience_s = 120.0", "stall_timeout_s = 5.0", 'advise = ["XidFatal"]')
    with _training("evaluate", 160, "node-1", "node-2", core_lines=modes) as fleet:
        if when == "long before":
            _break_gpu(fleet, "node-1", "node-2")
        fleet.until("an evaluation", _PATIENCE_S, (fleet.folder / "started").exists)
        began_s = time.monotonic()
        if when == "meanwhile":
            _break_gpu(fleet, "node-1", "node-2")
        _ends_well(fleet)
        assert time.monotonic() - began_s > _EVALUATES_S
        job = fleet.job()
        assert (job.generation, job.outcome) == (1, "succeeded")
        found = fleet.everstep("events").stdout
        assert "XidFatal" in found or "Xid 79" in found


def _break_gpu(fleet: RealFleet, *nodes: str) -> None:
    """Have the driver log that a GPU is gone, on nodes whose ranks use none."""
    for name in nodes:
        with (fleet.folder / name / "kernel.log").open("a") as log:
            log.write("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n")


def test_an_operator_reaches_a_job_that_hangs_before_its_first_step_within_ten_seconds() -> None:
    with _training("sleep", 40, "node-1", "node-2") as fleet:
        fleet.until("the hang", _PATIENCE_S, (fleet.folder / "started").exists)
        time.sleep(2.0)  # ranks that have told nothing for a while, and not ranks that just began
        assert fleet.job().state == "starting"
        ordered_s = time.monotonic()
        done = fleet.everstep("job", JOB, "restart", "--reason", "it hangs")
        assert done.returncode == 0, done.stderr
        fleet.until("the stop", 20.0, lambda: fleet.job().state != "starting")
        assert time.monotonic() - ordered_s < 15.0
        _ends_well(fleet)
        assert fleet.job().generation == 2


def test_a_rank_that_is_stopped_before_the_first_step_is_found_by_a_look_after_a_minute() -> None:
    with _training("stop", 40, "node-1", "node-2") as fleet:
        fleet.until("the hang", _PATIENCE_S, (fleet.folder / "started").exists)
        _ends_well(fleet)
        assert fleet.job().generation == 2
        told = fleet.everstep("events", "--subject", JOB).stdout
        assert "its process is stopped" in told.lower()
