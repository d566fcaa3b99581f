"""Cadence of real jobs: a controller, an agent and a rank, as shipped, that is killed at random."""

import itertools
import json
import os
import random
import signal
import statistics
import time
from typing import NamedTuple

from cadence.rows import Cell, Row, Run
from harness.processes import BENCH

from everstep_proto.generated import admin_pb2
from integration.real_fleet import JOB, RealFleet, running_fleet

_SCRIPT = BENCH / "harness/training_rank.py"
_NODE = "node-1"
_PATIENCE_S = 120.0
# Until the first decision, and a new rule has begun: a minute, 101 steps and five seconds.
_KNOWN_S, _KNOWN_STEPS = 75.0, 130
_BETWEEN_S = (10.0, 30.0)
# A step that was not to be saved stalls for microseconds.
_SAVED_S = 1e-4
# Faults of one node in a day end its part in a job (`core.strike_window_s`): not here.
_CORE = ("strike_window_s = 0.001",)


def real_row(cell: Cell, faults: int, seed: int) -> Row:
    """Run a cell as shipped, and with a snapshot at every step."""
    shipped, stall_s = _run(cell, faults, seed, ())
    every, _ = _run(cell, faults, seed, ("--snapshot-every", "1"))
    return Row(cell, "processes", stall_s, statistics.mean(_BETWEEN_S), shipped, every)


def _run(cell: Cell, faults: int, seed: int, options: tuple[str, ...]) -> tuple[Run, float]:
    rng = random.Random(seed)
    with running_fleet(_NODE, core_lines=_CORE) as fleet:
        fleet.launcher_options = ("--max-restarts", "1000", *options)
        line = ["--bytes", str(cell.state_bytes), "--step-seconds", str(cell.step_s)]
        fleet.launch_script([str(_SCRIPT), *line])
        fleet.until("steps", _PATIENCE_S, lambda: bool(_steps(fleet, 1)))
        time.sleep(max(_KNOWN_S, _KNOWN_STEPS * cell.step_s))
        known_s = time.monotonic()
        for generation in range(1, faults + 1):
            time.sleep(rng.uniform(*_BETWEEN_S))
            rank = fleet.rank(_NODE)
            assert rank is not None
            os.kill(rank.pid, signal.SIGKILL)
            following = generation + 1
            fleet.until("a restart", _PATIENCE_S, lambda n=following: bool(_steps(fleet, n)))  # type: ignore[misc]
        time.sleep(_KNOWN_S / 3)
        return _result(fleet, faults, known_s)


def _result(fleet: RealFleet, faults: int, known_s: float) -> tuple[Run, float]:
    told = [_steps(fleet, number) for number in range(1, faults + 2)]
    # What was killed before it had written its last step down has lost none.
    lost = tuple(
        max(0, before[-1].number + 1 - after[0].number)
        for before, after in itertools.pairwise(told)
    )
    stalls = [step.stall_s for steps in told for step in steps if step.stall_s > _SAVED_S]
    known = [step for steps in told for step in steps if step.ended_s >= known_s]
    stalled_s = sum(step.stall_s for step in known)
    trained_s = sum(
        steps[-1].ended_s - max(known_s, steps[0].ended_s)
        for steps in told
        if steps[-1].ended_s > known_s
    )
    unsaved = sum(steps[-1].unsaved for steps in told)
    every = fleet.admin.call(
        lambda stub: stub.GetJob, admin_pb2.GetJobRequest(job=JOB)
    ).cadence.every
    return Run(lost, stalled_s / trained_s, every, unsaved), statistics.median(stalls)


class _Step(NamedTuple):
    """Step that a rank has written down: when its snapshot began, and its stall, in seconds."""

    number: int
    began_s: float
    stall_s: float
    # Steps that were not saved by then.
    unsaved: int

    @property
    def ended_s(self) -> float:
        """Return when it had ended."""
        return self.began_s + self.stall_s


def _steps(fleet: RealFleet, generation: int) -> list[_Step]:
    """Return the steps that a generation has written down."""
    path = fleet.folder / "losses" / f"{generation}.tsv"
    if not path.exists():
        return []
    lines = path.read_text(encoding="ascii").rpartition("\n")[0].splitlines()
    return [_Step(*json.loads(line)[:4]) for line in lines]
