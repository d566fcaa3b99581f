"""Scripted jobs for the ledger's benchmark: what happens, and where each nanosecond really went."""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.accounting.ledger import Ledger
from everstep_controller.core.accounting.slow_time import SlowTime, slow_time

S = 1_000_000_000
# A judge sees who is slow after so many seconds.
_JUDGED_S = 100
_WARMUP_STEPS = 3
_NO_PAUSE: Mapping[Category, int] = MappingProxyType({})


@dataclass(slots=True)
class _Step:
    number: int
    spent: dict[Category, int]


@dataclass(slots=True)
class ScriptedJob:
    """A job on a clock that is made, its ledger, and the truth."""

    base_ns: int
    # By what share a step is longer or shorter by chance; what it is longer goes where excess does.
    noise: float = 0.0
    chance: random.Random = field(default_factory=lambda: random.Random(3))
    ledger: Ledger = field(default_factory=lambda: Ledger(0, nodes=4))
    truth: Counter[Category] = field(default_factory=Counter)
    now_ns: int = 0
    number: int = 0
    incidents: int = 0
    _steps: list[_Step] = field(default_factory=list)

    def begin(self, queue_s: float) -> None:
        """Wait for nodes, and begin to step."""
        self.ledger.enter(0, Category.INIT_QUEUE)
        self._pass(Category.INIT_QUEUE, round(queue_s * S))
        self.ledger.begin_steps(self.now_ns, warmup=False)

    def step(
        self,
        excess_ns: int = 0,
        category: Category = Category.SLOW,
        stall_ns: int = 0,
        pauses: Mapping[Category, int] = _NO_PAUSE,
    ) -> None:
        """Make a step that takes longer, for a known reason, or in which something else is done."""
        off_ns = round(self.base_ns * self.noise * max(-3.0, min(3.0, self.chance.gauss(0, 1))))
        spent = {
            Category.PRODUCTIVE: self.base_ns + min(off_ns, 0),
            category: excess_ns + max(off_ns, 0),
            Category.STALL: stall_ns,
            **pauses,
        }
        if excess_ns and off_ns < 0:  # such a step is still longer than the reference
            spent[Category.PRODUCTIVE], spent[category] = self.base_ns, max(0, excess_ns + off_ns)
        for one, amount in spent.items():
            self._pass(one, amount)
        self._steps.append(_Step(self.number, spent))
        self.ledger.commit_step(self.number, self.now_ns, stall_ns, pauses)
        self.number += 1

    def be_slow(self, factor: float, steps: int) -> None:
        """Have a node be slow for some steps; it is judged later than it begins."""
        began_ns, told = self.now_ns, False
        for _ in range(steps):
            self.step(round(self.base_ns * (factor - 1)), Category.SLOW_NODE)
            if not told and self.now_ns - began_ns > _JUDGED_S * S:
                self.ledger.attribute(slow_time([factor], ["pauses"]), began_ns)
                told = True
        if not told:
            self.ledger.attribute(slow_time([factor], ["pauses"]), began_ns)
        self.ledger.attribute(slow_time([], ["pauses"]), self.now_ns)

    def crash(self, chance: random.Random, lost_steps: int) -> None:
        """Lose a rank in a step, recover through all stages, and make steps again."""
        self.incidents += 1
        name = f"j.{self.incidents}"
        self._pass(Category.LOST_IN_FLIGHT, round(self.base_ns * chance.uniform(0.1, 0.9)))
        onset_ns = self.now_ns
        self._pass(Category.DETECT, round(chance.uniform(0.5, 60) * S))
        self.ledger.record_fault(onset_ns, self.now_ns, name, "node")
        self._pass(Category.DIAGNOSE, round(chance.uniform(0.1, 5) * S))
        stages = (
            Category.DRAIN, Category.CAPACITY, Category.SCHEDULE, Category.ENV, Category.INIT,
            Category.RESTORE,
        )  # fmt: skip
        for stage in stages:
            self.ledger.enter(self.now_ns, stage)
            self._pass(stage, round(chance.uniform(0.2, 120) * S))
        self._lose(lost_steps)
        self.ledger.begin_steps(self.now_ns, warmup=True)
        self.ledger.attribute(slow_time([], ["pauses"]))
        for _ in range(_WARMUP_STEPS):
            self.step(round(self.base_ns * chance.uniform(0, 2)), Category.WARMUP)

    def _lose(self, count: int) -> None:
        for one in self._steps[len(self._steps) - count :]:
            for category, amount in one.spent.items():
                self.truth[category] -= amount
                self.truth[Category.LOST_RECOMPUTE] += amount
            self.number = min(self.number, one.number)
        del self._steps[len(self._steps) - count :]
        self.ledger.roll_back(self.number - 1)

    def _pass(self, category: Category, lasted_ns: int) -> None:
        self.truth[category] += lasted_ns
        self.now_ns += lasted_ns

    def wrong(self) -> dict[Category, tuple[float, float]]:
        """Return the categories that are off by more than 2 % and 100 ms: told and true seconds."""
        told = self.ledger.totals(self.now_ns)
        assert sum(told.values()) == self.now_ns == sum(self.truth.values())
        return {
            one: (told.get(one, 0) / S, self.truth[one] / S)
            for one in told.keys() | self.truth.keys()
            if abs(told.get(one, 0) - self.truth[one]) > max(0.1 * S, 0.02 * self.truth[one])
        }


def random_job(seed: int, hours: float, noise: float = 0.0) -> ScriptedJob:
    """Return a job to which all of it happens, in an order by chance."""
    chance = random.Random(seed)
    job = ScriptedJob(round(chance.uniform(0.5, 12) * S), noise)
    job.begin(chance.uniform(0, 900))
    for _ in range(120):
        job.step()
    job.ledger.attribute(SlowTime(pauses=True))
    while job.now_ns < hours * 3600 * S:
        what = chance.random()
        for _ in range(chance.randrange(20, 300)):
            job.step(stall_ns=round(0.03 * job.base_ns) * (chance.random() < 0.1))
        if what < 0.15:
            pauses = {Category.EVAL: 300.0, Category.PERSIST: 60.0, Category.USER_PAUSE: 30.0}
            told = {name: round(chance.uniform(0, most) * S) for name, most in pauses.items()}
            job.step(pauses=told)
        elif what < 0.4:
            job.step(round(job.base_ns * chance.uniform(1, 20)), Category.SLOW_PAUSES)
        elif what < 0.6:
            job.be_slow(chance.uniform(1.1, 2.5), chance.randrange(20, 600))
        else:
            lost = chance.choice((0, 1, chance.randrange(2, 200)))
            job.crash(chance, min(lost, len(job._steps) - 1))
    for _ in range(10):
        job.step()
    return job


# --- scenarios of which Google's library does not tell the truth ---------------------------------


def crash_loop() -> ScriptedJob:
    """Five attempts before the first step after a fault."""
    job = _steady(300)
    chance = random.Random(5)
    job.crash(chance, 0)
    for _ in range(4):
        job.ledger.record_interruption(job.now_ns, job.now_ns, "j.1")
        for stage in (Category.DRAIN, Category.INIT):
            job.ledger.enter(job.now_ns, stage)
            job._pass(stage, 90 * S)
        job.ledger.begin_steps(job.now_ns, warmup=True)
    return _on(job, 300)


def restart_at_a_new_step() -> ScriptedJob:
    """An outage between two steps, after which the next one is made that was never begun."""
    job = _steady(300)
    job.crash(random.Random(6), 0)
    return _on(job, 300)


def stall_that_heals() -> ScriptedJob:
    """A step that takes twenty minutes, and then all is well."""
    job = _steady(300)
    job.ledger.attribute(SlowTime(pauses=True))
    job.step(1200 * S, Category.SLOW_PAUSES)
    return _on(job, 300)


def straggler() -> ScriptedJob:
    """A node that is half as fast for half of the steps."""
    job = _steady(300)
    job.be_slow(2.0, 300)
    return _on(job, 0)


SCENARIOS = {
    "a crash loop of five attempts": crash_loop,
    "a restart at a step that was never begun": restart_at_a_new_step,
    "a stall of 20 min that heals": stall_that_heals,
    "a node at half speed for half of the steps": straggler,
}


def _steady(steps: int) -> ScriptedJob:
    job = ScriptedJob(10 * S)
    job.begin(60)
    return _on(job, steps)


def _on(job: ScriptedJob, steps: int) -> ScriptedJob:
    for _ in range(steps):
        job.step()
    return job
