"""Stacks of a job at the command line, of real agents and launchers: who holds the others back."""

import json
import os
import signal
from collections.abc import Iterator

import pytest

from everstep_cli.demo import reaper
from integration.real_fleet import JOB, RealFleet, running_fleet

pytestmark = pytest.mark.timeout(600)
_PATIENCE_S = 90.0
# Rank 2 reads, and the others wait for it.
_SCRIPT = """
import os, time
import torch
import torch.distributed as dist

def read_samples():
    time.sleep(600)

dist.init_process_group("gloo")
total = torch.ones(4)
for step in range(5):
    dist.all_reduce(total)
    print(f"step {step}", flush=True)
    time.sleep(0.2)
print("ready", flush=True)
if os.environ["RANK"] == "2":
    read_samples()
dist.all_reduce(total)
"""


@pytest.fixture
def pair() -> Iterator[RealFleet]:
    with running_fleet("node-1", "node-2", core_lines=("stall_timeout_s = 5",)) as fleet:
        script = fleet.folder / "script.py"
        script.write_text(_SCRIPT)
        fleet.launch_script([str(script)], processes=2, nodes="2")
        fleet.until("ready", _PATIENCE_S, lambda: _ready(fleet) == 4)
        yield fleet


def _ready(fleet: RealFleet) -> int:
    return fleet.everstep("logs", JOB).stdout.count("ready")


def _stacks(fleet: RealFleet) -> str:
    told = fleet.everstep("job", JOB, "stacks")
    assert told.returncode == 0, told.stderr
    return told.stdout


def _pid(fleet: RealFleet, rank: int) -> int:
    running = fleet.owned.below(fleet.launchers["node-2"])
    return next(
        process.pid
        for process in running
        if reaper.environment(process.pid).get("RANK") == str(rank)
    )


def test_who_holds_a_job_back_is_named_and_what_cannot_be_seen_is_said(pair: RealFleet) -> None:
    pair.until("all stacks", _PATIENCE_S, lambda: "3 ranks: 0-1,3" in _stacks(pair))
    drawn = _stacks(pair)
    assert "read_samples" in drawn
    assert "Rank 2 holds the job back: CPU side." in drawn
    assert "ranks 0-1,3 wait in all_reduce" in drawn

    # Nobody has to ask: it stands in the reason why the job is stalled.
    why = "Rank 2 holds the job back: CPU side."
    pair.until("the verdict", _PATIENCE_S, lambda: why in pair.everstep("why", JOB).stdout)

    # A launcher that stands still hides its own ranks, and nobody else's.
    launcher = pair.launchers["node-1"].process
    launcher.send_signal(signal.SIGSTOP)
    try:
        drawn = _stacks(pair)
    finally:
        launcher.send_signal(signal.SIGCONT)
    assert "node-1: its launcher did not answer within 4 s" in drawn
    assert "read_samples" in drawn

    os.kill(_pid(pair, 2), signal.SIGSTOP)
    pair.until("a stopped rank", _PATIENCE_S, lambda: "rank 2 on node-2: stopped" in _stacks(pair))
    lines = pair.everstep("job", JOB, "stacks", "--json").stdout.splitlines()
    assert {json.loads(line)["node"] for line in lines} == {"node-1", "node-2"}

    for one in pair.launchers.values():
        one.process.send_signal(signal.SIGINT)
    pair.until("the end", _PATIENCE_S, lambda: pair.job().state == "ended")
    told = pair.everstep("job", JOB, "stacks")
    assert told.returncode != 0
    assert "has no ranks now: it is ended" in told.stderr
