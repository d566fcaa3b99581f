"""A training script that knows nothing of Everstep, and has no recorder of its collectives.

Its processes add up by sockets, and print a line a step.
"""

import sys
import time
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "field/jobs/scripts"))

from together import Together

together = Together()
weight = np.ones(1)
for step in range(int(sys.argv[1])):
    total = together.sum(weight * 0.01)
    weight -= total / together.size
    time.sleep(0.1)
    if together.rank == 0:
        print(f"step {step} loss {weight.item():.4f}", flush=True)
