"""World of a fault: the fleet, the jobs that run, and the draw that chooses among them."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from field.jobs.running import Job
from field.jobs.shapes import Shape
from field.machines.fleet import Fleet
from field.machines.machine import Machine

# A rank that makes steps has a state to lose: it is hit more often than one that starts or waits.
_TRAINS_WEIGHT = 4


class NothingToHitError(Exception):
    """There is no target: no job runs, or no machine is up."""


@dataclass(slots=True)
class World:
    """What a blow chooses its target from."""

    fleet: Fleet
    jobs: Callable[[], list[Job]]
    chance: random.Random
    wheel: str
    # What other faults hold at this moment: no machine is hit by two at once.
    held: set[str] = field(default_factory=set)

    def machine(self, but_the_controller: bool = False) -> Machine:
        """Return a machine that is up and that no other fault holds."""
        fit = [
            one
            for one in self.fleet.machines.values()
            if one.is_up
            and one.name not in self.held
            and not (but_the_controller and one.name == self.fleet.control)
        ]
        if not fit:
            raise NothingToHitError("no machine that is up and not hit already")
        return self.chance.choice(fit)

    def ranks(
        self, fits: Callable[[Shape], bool] = lambda _: True
    ) -> tuple[Job, Machine, list[int]]:
        """Return a job that runs and is fit, a machine on which it has ranks, and these.

        Each rank is as likely as another, and more likely where its job makes steps.
        """
        found, weights = [], []
        for job in self.jobs():
            if not fits(job.spec.shape):
                continue
            for name in job.spec.machines:
                one = self.fleet.machine(name)
                if one.is_up and name not in self.held and (pids := job.ranks(one)):
                    found.append((job, one, pids))
                    weights.append(len(pids) * (_TRAINS_WEIGHT if job.trains() else 1))
        if not found:
            raise NothingToHitError("no rank runs")
        (chosen,) = self.chance.choices(found, weights)
        return chosen


@dataclass(frozen=True, slots=True)
class Done:
    """What a blow did, and how it is undone when its time is over."""

    nodes: tuple[str, ...] = ()
    job: str = ""
    detail: str = ""
    undo: Callable[[], object] = lambda: None
    # Whether it has ended before its time: what it was done to is gone.
    is_over: Callable[[], bool] = lambda: False
