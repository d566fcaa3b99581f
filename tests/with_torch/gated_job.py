"""The training script of the proof that nothing is lost: no rank goes beyond the step in ``gate``.

Each rank of each generation writes the losses of all its steps to a file of its own. One that
stands at the gate with a step that was not saved tries again: no later step will be.
"""

import argparse
import os
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import everstep

sys.path.insert(0, str(Path(__file__).parents[1]))
from with_torch.job import KINDS

_LOOK_S = 0.01


def main(options: argparse.Namespace) -> None:
    folder = Path(os.environ["LOSSES"])
    run = everstep.init()
    told = f"{os.getpid()} {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    (folder / f"rank-{run.generation}-{run.rank}").write_text(told, encoding="ascii")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    training = KINDS[options.kind](run)
    last = training.restore()
    with (folder / f"{run.generation}-{run.rank}.tsv").open("a", buffering=1) as losses:
        saved = True
        for step in range(0 if last is None else last + 1, options.steps):
            while int((folder / "gate").read_text(encoding="ascii")) < step:
                saved = saved or training.save(step - 1)
                time.sleep(_LOOK_S)
            losses.write(f"{step}\t{training.step(step).hex()}\n")
            saved = training.save(step)
            run.step(step)
    dist.barrier()
    # A process that leaves early must not be seen as a fault by the others.
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--steps", type=int, required=True)
    main(parser.parse_args())
