"""A job in which a rank calls what does not fit, in a real fleet: it ends, and names that rank."""

import pytest

from integration.real_fleet import JOB, running_fleet

pytestmark = pytest.mark.timeout(600)
_PATIENCE_S = 90.0
# Rank 1 reduces a larger tensor, in whichever generation comes to that step; the script goes on
# from its own checkpoint.
_SCRIPT = """
import os, pathlib, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
done = pathlib.Path(sys.argv[1])
first = int(done.read_text()) + 1 if done.exists() else 1
dist.barrier()
for step in range(first, 1000):
    wrong = step == 60 and dist.get_rank() == 1
    dist.all_reduce(torch.ones(64 if wrong else 4))
    dist.broadcast(torch.ones(4), src=0)
    if dist.get_rank() == 0:
        done.write_text(str(step))
        print(f"step {step}", flush=True)
    time.sleep(0.02)
"""


def test_a_job_ends_when_the_same_mismatch_comes_again_and_the_rank_is_named() -> None:
    with running_fleet("node-1", "node-2") as fleet:
        script = fleet.folder / "script.py"
        script.write_text(_SCRIPT)
        command = [str(script), str(fleet.folder / "done")]
        fleet.launch_script(command, processes=2, nodes="2")
        fleet.until("the end", _PATIENCE_S, lambda: fleet.job().state == "ended")
        sentence = fleet.job().reason
        assert "ranks call operations that do not fit together" in sentence
        assert "Rank 1 holds the job back: software desync" in sentence
        assert "of 64 Float where 4 Float came" in sentence
        assert fleet.job().generation == 2
        assert not any(one.node for one in fleet.sheet(JOB).incidents)
