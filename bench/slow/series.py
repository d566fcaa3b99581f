"""Series of seconds for bench slow and tests: public traces, and workers whose noise is made.

The traces are ByteDance's StragglerAnalysis (OSDI 2025): AR has one slowed worker, SE sequences of
different lengths and no slow worker. A worker is a data-parallel rank of a pipeline stage; its
seconds are its median forward and its median backward pass of a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from everstep_controller.slow.peers import Floats, Roster

# Beside the repository, or beside the folder of its worktrees.
_SHARED = [parent / "shared/data/straggler_traces" for parent in Path(__file__).parents[3:5]]
TRACES = next((one for one in _SHARED if one.is_dir()), None)
NAMES = ("AR", "SE") if TRACES else ()
# Of AR: stage 0, data-parallel rank 0.
SLOW_IN_AR = "0-0"


@dataclass(frozen=True, slots=True)
class Series:
    """Seconds of workers by step: one row for each step, one column for each worker."""

    name: str
    roster: Roster
    steps: Sequence[int]
    seconds: Floats

    def with_slow(self, worker: int, since: int, factor: float) -> "Series":
        """Return the series with a worker that is slow from a row on."""
        seconds = self.seconds.copy()
        seconds[since:, worker] *= factor
        return Series(self.name, self.roster, self.steps, seconds)


@cache
def trace(name: str) -> Series:
    """Return a public trace."""
    return _read(name, ("forward-compute", "backward-compute"))


@cache
def collective_seconds(name: str) -> Series:
    """Return how long each worker of a public trace was in the collective on its gradients."""
    return _read(name, ("grads-reduce-scatter",))


def _read(name: str, kinds: Sequence[str]) -> Series:
    from pyarrow import parquet

    if TRACES is None:
        raise FileNotFoundError("shared/data/straggler_traces is not beside the repository")
    columns = ["step", "stage", "dp_rank", "optype", "duration"]
    rows = parquet.read_table(TRACES / f"trace-{name}.parquet", columns=columns).to_pydict()
    passes: dict[tuple[int, tuple[int, int], str], list[float]] = {}
    for step, stage, rank, kind, seconds in zip(*(rows[one] for one in columns), strict=True):
        if kind in kinds:
            passes.setdefault((step, (stage, rank), kind), []).append(seconds)
    steps = sorted({step for step, _, _ in passes})
    workers = sorted({worker for _, worker, _ in passes})
    seconds = np.array(
        [
            [sum(np.median(passes[step, worker, kind]) for kind in kinds) for worker in workers]
            for step in steps
        ]
    )
    roles = np.array([stage for stage, _ in workers])
    names = [f"{stage}-{rank}" for stage, rank in workers]
    role_names = [f"stage{stage}" for stage in range(int(roles.max()) + 1)]
    return Series(name, Roster(names, roles, role_names), steps, seconds)


def healthy(name: str) -> Series:
    """Return a public trace without its slow worker, which is replaced by a peer's past."""
    whole = trace(name)
    if name != "AR":
        return whole
    seconds = whole.seconds.copy()
    slow = whole.roster.names.index(SLOW_IN_AR)
    # The peer as it was eleven steps before, so that it is no twin of the peer.
    seconds[:, slow] = np.roll(seconds[:, slow + 1], 11)
    return Series(name, whole.roster, whole.steps, seconds)


def made(seed: int, workers: int = 64, roles: int = 4, steps: int = 60) -> Series:
    """Return workers whose noise is made: heavy tails (Student-t, 3), steps of different lengths.

    The noise of a step is 1 to 3 %, so between that of AR and that of SE.
    """
    random = np.random.default_rng(seed)
    scale = random.uniform(0.01, 0.03)
    whole = random.normal(0.0, 0.1, (steps, 1))
    noise = scale * random.standard_t(3, (steps, workers))
    own = random.normal(0.0, 0.005, workers)
    role = np.repeat(np.arange(roles), workers // roles)
    pace = random.uniform(0.5, 1.5, roles)[role]
    names = [f"{one}-{index}" for index, one in enumerate(role.tolist())]
    roster = Roster(names, role, [f"stage{one}" for one in range(roles)])
    return Series(f"made {seed}", roster, range(steps), pace * np.exp(whole + noise + own))
