"""Ranks of a job by real agents and launchers: whose process is whose, and no loader's worker."""

import json
import os
import signal
from pathlib import Path

import pytest

from everstep_cli.demo import reaper
from integration.real_fleet import JOB, RealFleet, running_fleet

pytestmark = pytest.mark.timeout(300)
_PATIENCE_S = 60.0
# As a script with a loader: its workers are forks, and have its name.
_SCRIPT = """
import multiprocessing, time

def load(queue):
    while True:
        queue.put(1)

fork = multiprocessing.get_context("fork")
samples = fork.Queue(4)
fork.Process(target=load, args=(samples,), daemon=True).start()
for step in range(100_000):
    samples.get()
    time.sleep(0.1)
    print(f"step {step}", flush=True)
"""


def _pids(fleet: RealFleet) -> dict[int, tuple[str, int]]:
    told = fleet.everstep("job", JOB, "ranks", "--json")
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    return {one["rank"]: (one["node"], one["pid"]) for one in lines if one["pid"]}


def _is_own(fleet: RealFleet, node: str, pid: int) -> bool:
    """Return whether a process is a child of the launcher there; workers are their ranks'."""
    parent = reaper.parents()[pid]
    command = Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0")
    below = {one.pid for one in fleet.owned.below(fleet.launchers[node])}
    return pid in below and b"run" in command


def test_each_rank_is_listed_with_its_own_process_also_after_a_kill() -> None:
    with running_fleet("node-1", "node-2") as fleet:
        script = fleet.folder / "script.py"
        script.write_text(_SCRIPT)
        fleet.launch_script([str(script)], processes=2, nodes="2")
        fleet.until("all ranks", _PATIENCE_S, lambda: len(_pids(fleet)) == 4)
        before = _pids(fleet)
        assert {rank: node for rank, (node, _) in before.items()} == {
            0: "node-1",
            1: "node-1",
            2: "node-2",
            3: "node-2",
        }
        for rank, (node, pid) in before.items():
            assert _is_own(fleet, node, pid)
            assert reaper.environment(pid)["RANK"] == str(rank)

        os.kill(before[3][1], signal.SIGKILL)
        died = "rank 3 on node-2 was killed by signal 9"
        fleet.until("the death", _PATIENCE_S, lambda: died in fleet.everstep("job", JOB).stdout)
        fleet.until("new ranks", _PATIENCE_S, lambda: _are_new(fleet, before))
        # Those that were started ahead have no number in their environment.
        assert all(_is_own(fleet, *where) for where in _pids(fleet).values())


def _are_new(fleet: RealFleet, before: dict[int, tuple[str, int]]) -> bool:
    now = _pids(fleet)
    return len(now) == 4 and not set(now.values()) & set(before.values())
