"""What ranks of torch load is told to launchers elsewhere, also once they have made a group."""

import sys
from pathlib import Path

from everstep_common.launcher_messages import Settled
from fakes.waits import wait_until
from integration.trainer_job import joined_job

_SCRIPT = """
import pathlib, sys, time
import torch.distributed
import everstep
run = everstep.init()
torch.distributed.init_process_group("gloo")
run.step(0)
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""


def test_a_rank_that_has_made_a_process_group_tells_what_it_has_loaded(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_SCRIPT)
    made = tmp_path / "made"
    with joined_job(tmp_path, sys.executable, str(script), str(made)) as job:
        job.start(1, ranks=1)
        wait_until(made.exists, 60.0)
        job.agent.tell_launcher(Settled(1))
        wait_until(lambda: job.agent.preload is not None, 60.0)
        preload = job.agent.preload
        job.stop(1)
        job.end()
    assert preload is not None
    assert "torch.distributed" in preload.modules
    assert preload.variables == {}
