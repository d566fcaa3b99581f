"""Everstep inside a training process: step progress and step-level snapshots.

    snapshots = everstep.snapshots({"model": model, "optimizer": optimizer})
    last = snapshots.restore()
    for step in range(0 if last is None else last + 1, steps):
        ...
        snapshots.snapshot(step)
        everstep.step(step)

Outside a job (without ``everstep run``) the same lines work and do nothing.
"""

from everstep.copy_engine.views import RestoreError, State, StateError
from everstep.loss import BadStepError
from everstep.process import pause, phase, report, role, snapshots, step, waiting
from everstep.rank.agent_link import RefusedError
from everstep.run import Run, init
from everstep.saving.digest import DigestError
from everstep.saving.snapshotter import SnapshotError, Snapshots
from everstep.shares import MicroBatch, Share
from everstep.state.objects.random_state import RandomState
from everstep_common.version import VERSION

__version__ = VERSION

__all__ = [
    "BadStepError",
    "DigestError",
    "MicroBatch",
    "RandomState",
    "RefusedError",
    "RestoreError",
    "Run",
    "Share",
    "SnapshotError",
    "Snapshots",
    "State",
    "StateError",
    "__version__",
    "init",
    "pause",
    "phase",
    "report",
    "role",
    "snapshots",
    "step",
    "waiting",
]
