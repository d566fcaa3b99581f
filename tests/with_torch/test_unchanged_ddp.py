"""The field's unchanged script with DistributedDataParallel, by itself: it trains and goes on."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from field.machines.image import REPOSITORY

_SCRIPTS = REPOSITORY / "tests/field/jobs/scripts"
_RANKS = 2


def test_it_goes_on_at_its_checkpoint(tmp_path: Path) -> None:
    _train(tmp_path, 5)
    _train(tmp_path, 7)
    told = [line.split("\t") for line in (tmp_path / "losses").read_text().splitlines()]
    assert [int(step) for step, _ in told] == [0, 1, 2, 3, 4, 4, 5, 6]
    # Step 4 came after the checkpoint: it is made again, from the same state.
    assert told[4] == told[5]
    assert len({loss for _, loss in told}) == 7


def _train(out: Path, steps: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    own = ["--steps", str(steps), "--losses", str(out / "losses")]
    own += ["--checkpoint", str(out / "checkpoint"), "--checkpoint-every", "4"]
    pauses = ["--load-seconds", "0.01", "--pack-seconds", "0.01", "--evaluate-every", "3"]
    line = [str(_SCRIPTS / "hanging_ddp.py"), *own, *pauses]
    fixed = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(_RANKS)}
    path = os.pathsep.join([str(REPOSITORY / "examples"), *filter(None, sys.path)])
    ranks = [
        subprocess.Popen(
            [sys.executable, *line],
            env=os.environ
            | fixed
            | {"PYTHONPATH": path, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
        )
        for rank in range(_RANKS)
    ]
    assert [rank.wait(timeout=120) for rank in ranks] == [0] * _RANKS
