"""Fleet of 16,384 GPUs in the noise of noise.toml: false verdicts, and slow nodes found."""

import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from slow.series import NAMES, Series, healthy

from everstep_controller.slow.peers import Floats, Indices, Roster
from everstep_controller.slow.watch import SlowWatch, StepJudgement

NOISE = Path(__file__).with_name("noise.toml")
_DAY_S = 86_400
# Drift moves so little from step to step that it is drawn once in so many.
_DRIFT_EVERY = 20
# After a cause ends, its steps are still in the windows.
_GRACE = 30


@dataclass(slots=True)
class Cause:
    """Something that makes workers slower for a time; steps are counted from 0."""

    workers: Indices
    factor: float
    until: int
    began: int


@dataclass(slots=True)
class FleetCount:
    """What a run has found."""

    node_days: float = 0.0
    planted: int = 0
    found: int = 0
    # Healthy nodes that were named, which is advice; and those of them that would be isolated.
    false: int = 0
    isolated: int = 0
    latencies: list[int] = field(default_factory=list)


class FleetNoise:
    """Seconds of all GPUs by step, with causes that come and go."""

    def __init__(self, seed: int) -> None:
        model = tomllib.loads(NOISE.read_text(encoding="utf-8"))
        self.fleet = model["fleet"]
        self._model = model
        self._random = np.random.default_rng(seed)
        self.nodes = int(self.fleet["nodes"])
        self.size = self.nodes * int(self.fleet["gpus_per_node"])
        self.node_of = np.arange(self.size) // int(self.fleet["gpus_per_node"])
        self.leaf_of = self.node_of // int(self.fleet["nodes_per_leaf"])
        self.power_of = self.leaf_of // int(self.fleet["leaves_per_power_domain"])
        self.shared: list[Cause] = []
        self.planted: list[Cause] = []
        self._drift = self._random.normal(0.0, model["drift"]["per_day"] / math.sqrt(2), self.size)
        self._residuals = {name: _residuals(healthy(name)) for name in NAMES}
        self._block: Floats = np.empty((0, self.size))
        # Beside the noise, which does not depend on who is named.
        self._chance = np.random.default_rng((seed, 1))

    def has_evidence(self, node: int, step: int) -> bool:
        """Return whether a healthy node has evidence of another kind against it now.

        All nodes of a place with a shared cause have, as of a power brake; others by chance.
        """
        worker = int(node * self.fleet["gpus_per_node"])
        shared = any(step < one.until + _GRACE and worker in one.workers for one in self.shared)
        return shared or self._chance.random() < self._model["evidence"]["of_healthy"]

    @property
    def days_per_step(self) -> float:
        """Return how long a step is."""
        return float(self.fleet["step_s"]) / _DAY_S

    def roster(self) -> Roster:
        """Return the GPUs, with their roles, nodes, leaves and power domains."""
        places = {"node": self.node_of, "leaf": self.leaf_of, "power": self.power_of}
        roles = int(self.fleet["roles"])
        return Roster(
            names=[str(one) for one in range(self.size)],
            roles=self.node_of % roles,
            role_names=[str(one) for one in range(roles)],
            places=places,
            place_names={
                kind: [str(one) for one in range(int(of.max()) + 1)] for kind, of in places.items()
            },
        )

    def steps(self, count: int) -> Iterator[Floats]:
        """Yield the seconds of all GPUs, step by step."""
        for step in range(count):
            ratios = self._noise(step, count)
            self._begin_causes(step)
            for cause in self.shared + self.planted:
                if step < cause.until:
                    ratios[cause.workers] += math.log(cause.factor)
            yield np.exp(self._disturbed(ratios))

    def _noise(self, step: int, count: int) -> Floats:
        random, model = self._random, self._model
        length = int(model["residuals"]["block_steps"])
        if step % length == 0:
            uneven = step >= count * (1 - model["residuals"]["share_of_se"])
            source = self._residuals["SE" if uneven else "AR"]
            first = random.integers(0, len(source) - length, self.size)
            which = random.integers(0, source.shape[1], self.size)
            self._block = source[first + np.arange(length)[:, None], which]
        if step % _DRIFT_EVERY == 0:
            part = _DRIFT_EVERY * self.days_per_step
            moved = random.normal(0.0, model["drift"]["per_day"] * math.sqrt(part), self.size)
            self._drift += moved - part * self._drift
        tails = model["tails"]["scale"] * random.standard_t(3, self.size)
        return np.asarray(self._block[step % length] + self._drift + tails)

    def _disturbed(self, ratios: Floats) -> Floats:
        random, model = self._random, self._model
        for kind in ("pauses", "missing"):
            which = random.integers(
                0, self.size, random.poisson(self.size * model[kind]["per_step"])
            )
            if kind == "missing":
                ratios[which] = np.nan
            else:
                low, high = model[kind]["factor"]
                ratios[which] += np.log(random.uniform(low, high, len(which)))
        rate = self.nodes * model["clocks"]["per_node_day"] * self.days_per_step
        for node in random.integers(0, self.nodes, random.poisson(rate)):
            low, high = np.log(model["clocks"]["factor"])
            ratios[self.node_of == node] += random.uniform(low, high)
        return ratios

    def _begin_causes(self, step: int) -> None:
        random = self._random
        for kind, of in (("leaf", self.leaf_of), ("power", self.power_of)):
            rule = self._model[kind]
            count = int(of.max()) + 1
            for place in random.integers(
                0, count, random.poisson(count * rule["per_day"] * self.days_per_step)
            ):
                steps = 60 * random.uniform(*rule["minutes"]) / self.fleet["step_s"]
                workers = np.flatnonzero(of == place)
                factor = random.uniform(*rule["factor"])
                self.shared.append(Cause(workers, factor, step + int(steps), step))
        self.shared = [one for one in self.shared if step < one.until + _GRACE]
        self._plant(step)

    def _plant(self, step: int) -> None:
        random, rule = self._random, self._model["planted"]
        rate = self.nodes * rule["per_node_day"] * self.days_per_step
        steps = int(rule["hours"] * 3600 / self.fleet["step_s"])
        for node in random.integers(0, self.nodes, random.poisson(rate)):
            workers = np.flatnonzero(self.node_of == node)
            if random.random() < 0.5:
                workers = workers[:1]
            factor = random.uniform(*rule["factor"])
            self.planted.append(Cause(workers, factor, step + steps, step))


def _residuals(series: Series) -> Floats:
    values = np.log(series.seconds)
    ratios = [row - series.roster.by_role.medians(row).of_peers for row in values]
    return np.array(ratios)


def run_fleet(seed: int, node_days: float) -> FleetCount:
    """Judge the fleet for so many node-days; return who was named rightly and wrongly."""
    noise = FleetNoise(seed)
    watch = SlowWatch(noise.roster())
    steps = math.ceil(node_days / noise.nodes / noise.days_per_step)
    count = FleetCount(node_days=steps * noise.days_per_step * noise.nodes)
    named: set[int] = set()
    found: set[int] = set()
    for step, seconds in enumerate(noise.steps(steps)):
        judged = watch.observe(step, seconds)
        named = _count(step, noise, judged, named, found, count)
    # What was planted in the last half hour had no time to show.
    planted = [one for one in noise.planted if one.began < steps - 2 * _GRACE]
    count.planted = len(planted)
    count.found = sum(id(one) in found for one in planted)
    return count


def _count(
    step: int,
    noise: FleetNoise,
    judged: StepJudgement,
    named: set[int],
    found: set[int],
    count: FleetCount,
) -> set[int]:
    now = {int(noise.node_of[one]) for one in np.flatnonzero(judged.slow)}
    for place in judged.places.found:
        if place.kind == "node":
            now.add(place.place)
    live = [one for one in noise.planted if step < one.until + _GRACE]
    by_node = {int(noise.node_of[one.workers[0]]): one for one in live}
    for node in now - named:
        cause = by_node.get(node)
        if cause is None:
            count.false += 1
            count.isolated += noise.has_evidence(node, step)
        elif id(cause) not in found:
            found.add(id(cause))
            count.latencies.append(step - cause.began + 1)
    return now
