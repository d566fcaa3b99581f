"""Everstep inside a training process: step progress and step-level snapshots.

    run = everstep.init()
    snapshots = run.snapshots({"model": weights, "momentum": momentum})
    last = snapshots.restore()
    for step in range(0 if last is None else last + 1, steps):
        ...
        snapshots.snapshot(step)
        run.step(step)

Outside a job (without ``everstep run``) the same lines work and do nothing.
"""

from everstep.agent_link import RefusedError
from everstep.restoring import RestoreError
from everstep.run import Run, init
from everstep.snapshots import Snapshots
from everstep.state import Shard, State, StateError
from everstep_common.version import VERSION

__version__ = VERSION

__all__ = [
    "RefusedError",
    "RestoreError",
    "Run",
    "Shard",
    "Snapshots",
    "State",
    "StateError",
    "__version__",
    "init",
]
