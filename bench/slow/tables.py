"""Tables of jobs in which nobody is slow, made from a seed: who is named, and who is missed.

Each kind has its own noise, chosen without a look at the rules; sizes, lengths, factors are drawn
for each table. The same table with one worker that becomes slow tells who is missed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from everstep_controller.slow.analysis import SlowAnalysis
from everstep_controller.slow.peers import Floats, Indices, Mask, Roster
from everstep_controller.slow.verdict import SlowVerdict

_FACTORS = (1.1, 1.15, 1.2, 1.3, 1.5, 2.0)
# So many steps before and after a worker becomes slow.
_BEFORE, _AFTER = 12, 25
_GPUS_PER_NODE = 4

Random = np.random.Generator


@dataclass(slots=True)
class Job:
    """Logarithms of seconds by step and worker, and the role of each worker."""

    ratios: Floats
    roles: Indices
    nodes: bool = False

    def roster(self) -> Roster:
        """Return the workers, with their roles and, where told, their nodes."""
        size, count = len(self.roles), int(self.roles.max()) + 1
        node = np.arange(size) // _GPUS_PER_NODE
        names = [str(one) for one in range(int(node.max()) + 1)]
        return Roster(
            [f"w{one}" for one in range(size)],
            self.roles,
            [f"r{one}" for one in range(count)],
            {"node": node} if self.nodes else {},
            {"node": names} if self.nodes else {},
        )


@dataclass(frozen=True, slots=True)
class TableCount:
    """What was found in tables of one kind."""

    tables: int
    # Of tables without a slow worker: in how many somebody was named.
    false: int
    # Of tables with one: in how many somebody else was, and in how many it was not named.
    false_beside: int
    missed: int


def judged(job: Job, seconds: Floats) -> SlowVerdict:
    """Return who is slow by ``everstep slow``."""
    analysis = SlowAnalysis(job.roster())
    for step, row in enumerate(seconds):
        analysis.observe(step, row)
    return analysis.verdict()


def count_tables(kind: str, seeds: range) -> TableCount:
    """Judge tables of a kind, each without a slow worker and with one."""
    false = beside = missed = 0
    for seed in seeds:
        random = np.random.default_rng((seed, *kind.encode()))
        job = KINDS[kind](random)
        verdict = judged(job, np.exp(job.ratios))
        false += bool(verdict.slow or verdict.places)
        steps, size = job.ratios.shape
        worker, since = int(random.integers(size)), int(random.integers(_BEFORE, steps - _AFTER))
        job.ratios[since:, worker] += np.log(random.choice(_FACTORS))
        verdict = judged(job, np.exp(job.ratios))
        right = [
            one for one in verdict.slow if one.worker == f"w{worker}" and one.judged_step >= since
        ]
        beside += len(right) < len(verdict.slow) or bool(verdict.places)
        missed += not right
    return TableCount(len(seeds), false, beside, missed)


# --- kinds of jobs -------------------------------------------------------------------------------


def _job(random: Random, least: float = 0.003, most: float = 0.03, per: int = 0) -> Job:
    """Return a job of 4 to 96 workers and 60 to 240 steps, with noise of one of three shapes."""
    count = int(random.choice([1, 1, 2, 4, 8]))
    roles = np.repeat(np.arange(count), per or int(random.integers(4, 1 + 96 // count)))
    shape = (int(random.integers(60, 240)), len(roles))
    drawn = (
        random.standard_normal(shape),
        random.standard_t(3, shape),
        random.laplace(size=shape) / 1.4,
    )[int(random.integers(3))]
    whole = random.normal(0, random.uniform(0, 0.1), (shape[0], 1))
    pace = np.log(random.uniform(0.7, 1.4, count))[roles] + random.normal(0, 0.004, shape[1])
    return Job(random.uniform(least, most) * drawn + whole + pace, roles)


def _few_peers(random: Random) -> Job:
    job = _job(random, 0.005, 0.08, int(random.integers(2, 6)))
    if random.random() < 0.5:
        job.ratios += random.exponential(random.uniform(0.02, 0.3), job.ratios.shape)
    return job


def _uneven_data(random: Random) -> Job:
    """Sequences have lengths with a Pareto tail; stages of a replica compute the same ones."""
    job = _job(random, most=0.02)
    steps, size = job.ratios.shape
    replicas = size // (int(job.roles.max()) + 1)
    drawn = random.pareto(random.uniform(1.3, 4), (steps, replicas, int(random.integers(1, 9))))
    length = np.minimum(1 + drawn, random.uniform(5, 50)).mean(axis=2)
    job.ratios += np.tile(np.log(random.uniform(0, 2) + length), size // replicas)
    return job


def _buckets(random: Random) -> Job:
    """Sequences of equal length last for some steps."""
    job = _job(random, most=0.02)
    steps, size = job.ratios.shape
    last, replicas = int(random.integers(2, 8)), size // (int(job.roles.max()) + 1)
    drawn = random.normal(0, random.uniform(0.02, 0.25), (steps // last + 1, replicas))
    job.ratios += np.tile(np.repeat(drawn, last, axis=0)[:steps], size // replicas)
    return job


def _two_lengths(random: Random) -> Job:
    job = _job(random, most=0.02)
    longer = random.random(job.ratios.shape) < random.uniform(0.05, 0.6)
    job.ratios += random.uniform(0.03, 0.4) * longer
    return job


def _levels(random: Random) -> Job:
    """Each worker changes between two levels, and stays there for 4 to 40 steps on average."""
    job = _job(random, most=0.02)
    above, share = random.uniform(4, 40), random.uniform(0.05, 0.5)
    level, below = random.random(len(job.roles)) < share, above * (1 - share) / share
    height = random.uniform(0.03, 0.25)
    for row in job.ratios:
        level ^= random.random(len(level)) < np.where(level, 1 / above, 1 / below)
        row += height * level
    return job


def _wandering(random: Random) -> Job:
    """Neighbouring steps of a worker are alike."""
    job = _job(random, most=0.01)
    alike, scale = random.uniform(0.5, 0.97), random.uniform(0.005, 0.05)
    own = random.normal(0, scale, len(job.roles))
    for row in job.ratios:
        own = alike * own + random.normal(0, scale * np.sqrt(1 - alike**2), len(own))
        row += own
    return job


def _noisy_workers(random: Random) -> Job:
    job = _job(random, most=0.01)
    size = len(job.roles)
    own = random.uniform(0, 0.02, size)
    own[random.random(size) < 0.15] *= random.uniform(3, 15)
    job.ratios += own * random.standard_t(3, job.ratios.shape)
    return job


def _stalls(random: Random) -> Job:
    """Loaders of some workers stall in a part of the steps: by chance, in turns, or in runs."""
    job = _job(random, most=0.02)
    steps, size = job.ratios.shape
    for worker in random.choice(size, int(random.integers(1, 4)), replace=False):
        stalled: Mask = np.asarray(random.random(steps) < random.uniform(0.1, 0.7))
        how = int(random.integers(3))
        if how == 1:
            stalled = np.arange(steps) % int(random.integers(2, 5)) > 0
        elif how == 2:
            lengths = 1 + random.geometric(0.4, steps)
            stalled = np.repeat(np.arange(steps) % 2 > 0, lengths)[:steps]
        job.ratios[stalled, worker] += np.log(random.uniform(1.1, 3.0, int(stalled.sum())))
    return job


def _node_stalls(random: Random) -> Job:
    job = _job(random, most=0.02)
    job.nodes = True
    workers = np.arange(len(job.roles)) // _GPUS_PER_NODE == 0
    stalled = random.random(len(job.ratios)) < random.uniform(0.2, 0.7)
    longer = np.log1p(random.exponential(random.uniform(0.1, 1), int(stalled.sum())))
    job.ratios[np.ix_(stalled, workers)] += longer[:, None]
    return job


def _pauses(random: Random) -> Job:
    """Garbage collection, in single steps and in some that follow one another."""
    job = _job(random)
    steps, size = job.ratios.shape
    single = random.random((steps, size)) < random.uniform(0.005, 0.06)
    job.ratios[single] += np.log(random.uniform(1.2, 5, int(single.sum())))
    for worker in range(0, size, 3):
        first = int(random.integers(steps))
        job.ratios[first : first + int(random.integers(2, 6)), worker] += random.uniform(0.2, 1.4)
    return job


def _drift(random: Random) -> Job:
    job = _job(random)
    job.ratios += np.cumsum(random.normal(0, 0.0006, job.ratios.shape), axis=0)
    return job


def _saves(random: Random) -> Job:
    """Saves and evaluation, on all workers or on some."""
    job = _job(random)
    steps, size = job.ratios.shape
    part = random.choice([1.0, 0.3, 0.01])
    who = random.choice(size, max(1, int(part * size)), replace=False)
    every, last = int(random.integers(6, 60)), int(random.integers(1, 4))
    job.ratios[np.ix_(np.arange(steps) % every >= every - last, who)] += random.uniform(0.1, 1.4)
    return job


def _first_steps(random: Random) -> Job:
    """The first steps are longer: of each worker another number of them, up to seven."""
    job = _job(random)
    longer = np.minimum(1 + random.poisson(random.uniform(1, 5), len(job.roles)), 7)
    job.ratios += random.uniform(0.2, 3) * (np.arange(len(job.ratios))[:, None] < longer)
    return job


def _experts(random: Random) -> Job:
    """Experts without roles: some are hot for 20 to 60 steps, and then others."""
    job = _job(random, most=0.02)
    job.roles = np.zeros_like(job.roles)
    steps, size = job.ratios.shape
    every, count = int(random.integers(20, 60)), max(2, int(random.uniform(0.03, 0.2) * size))
    hot = np.zeros(0, dtype=np.int64)
    for first in range(0, steps, every):
        hot = random.choice(
            np.setdiff1d(np.arange(size), hot), min(count, size // 2), replace=False
        )
        job.ratios[first : first + every, hot] += random.uniform(0.05, 0.4, len(hot))
    return job


def _stages(random: Random) -> Job:
    """The last stage is heavier, and in half of the tables no roles are told."""
    job = _job(random, most=0.02)
    job.ratios[:, job.roles == job.roles.max()] += random.uniform(0.05, 0.5)
    if random.random() < 0.5 and job.roles.max() > 0:
        job.roles = np.zeros_like(job.roles)
    return job


def _faulty_rows(random: Random) -> Job:
    """Wrong clocks, missing rows, and seconds that are rounded."""
    job = _job(random, most=0.04)
    shape = job.ratios.shape
    wrong = random.random(shape) < random.uniform(0.001, 0.02)
    job.ratios[wrong] += random.uniform(-2.3, 2.3, int(wrong.sum()))
    unit = random.choice([0.001, 0.02, 0.1, 0.2])
    job.ratios = np.log(unit * np.maximum(1, np.round(np.exp(job.ratios) / unit)))
    job.ratios[:, 1:][random.random(shape)[:, 1:] < random.uniform(0, 0.2)] = np.nan
    return job


KINDS: dict[str, Callable[[Random], Job]] = {
    "few peers": _few_peers,
    "uneven data": _uneven_data,
    "lengths that last": _buckets,
    "steps of two lengths": _two_lengths,
    "levels that change": _levels,
    "wandering": _wandering,
    "noisier workers": _noisy_workers,
    "stalls": _stalls,
    "a node's stalls": _node_stalls,
    "pauses": _pauses,
    "drift": _drift,
    "saves, evaluation": _saves,
    "first steps": _first_steps,
    "experts": _experts,
    "heavy stage": _stages,
    "faulty rows": _faulty_rows,
}


def rows(seed: int, tables: int) -> Iterator[tuple[str, TableCount]]:
    """Yield what was found in so many tables of each kind."""
    for kind in KINDS:
        yield kind, count_tables(kind, range(seed * 1_000_000, seed * 1_000_000 + tables))
