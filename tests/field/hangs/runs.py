"""Runs of hangs: a job trains on two machines, one of its ranks hangs, and what comes of it."""

import contextlib
import json
import os
import random
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from field.hangs.kinds import HIT, Case, cases
from field.jobs.running import Job, Spec, choose_machines
from field.machines.fleet import Fleet
from field.machines.machine import Machine
from field.machines.site import USERS

# What never came has taken so long.
BOUND_S = 120.0
_STEP_S = 0.1
_STARTS_S = 240.0
_ENDS_S = 60.0
_POLL_S = 0.05
_EVENTS = "1000"


@dataclass(frozen=True, slots=True)
class HangRun:
    """What became of one job; seconds since its rank was hit, None where that never came."""

    kind: str
    machines: tuple[str, ...] = ()
    next_step_s: float | None = None
    # The first word of each kind since then, and what it said.
    marks: dict[str, float] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    restarts: int = 0
    # How often people were told before that the job stands still.
    told_before: int = 0
    load: float = 0.0
    # Why it says nothing.
    failed: str = ""
    script: str = "numpy"

    @property
    def name(self) -> str:
        """Return the name of its case."""
        return f"{self.script}, {self.kind}"


class Runs:
    """What is still to be run: it goes out in an order that a seed gives, and is kept when done."""

    def __init__(self, path: Path, wanted: list[Case], seed: int, torch_ranks: int) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._left = list(wanted)
        random.Random(seed).shuffle(self._left)
        self._numbers = iter(range(len(kept(path)), 1_000_000))
        # How many ranks with torch may still be started.
        self._torch_ranks = torch_ranks

    def take(self) -> Generator[tuple[int, Case], None, None]:
        """Yield one after the other, to several threads, each once.

        It ends for a thread when what is left has more ranks with torch than may be alive beside
        those of others: these take it when their own have ended.
        """
        while (taken := self._begin()) is not None:
            try:
                yield taken
            finally:
                with self._lock:
                    self._torch_ranks += taken[1].shape.torch_ranks

    def _begin(self) -> tuple[int, Case] | None:
        with self._lock:
            for case in reversed(self._left):
                if case.shape.torch_ranks <= self._torch_ranks:
                    self._left.remove(case)
                    self._torch_ranks -= case.shape.torch_ranks
                    return next(self._numbers), case
        return None

    def keep(self, run: HangRun) -> None:
        """Add one that is over to those that are kept."""
        with self._lock, self._path.open("a") as file:
            file.write(json.dumps(asdict(run)) + "\n")


def kept(path: Path) -> list[HangRun]:
    """Return the runs that a file keeps."""
    lines = path.read_text().splitlines() if path.exists() else []
    told = map(json.loads, lines)
    return [HangRun(**{**one, "machines": tuple(one["machines"])}) for one in told]


def left(
    found: Sequence[HangRun], repeats: int, scripts: Sequence[str] = (), only: Sequence[str] = ()
) -> list[Case]:
    """Return what is missing until each case has run so often; a run that failed is run again."""
    done = [one.name for one in found if not one.failed]
    return [one for one in cases(scripts, only) for _ in range(repeats - done.count(one.name))]


def run(case: Case, number: int, fleet: Fleet, stopping: Callable[[], bool]) -> HangRun:
    """Train, hit one rank, and wait until the job trains again."""
    chance = random.Random(number)
    names = [name for name in fleet.site.names if name != fleet.control]
    shape = case.shape
    spec = Spec(
        name=f"{shape.name}-{number}",
        shape=shape,
        user=USERS[number % len(USERS)],
        machines=choose_machines(names, shape.nodes, chance),
        steps=1_000_000,
        step_s=_STEP_S,
        seed=number,
    )
    job = Job(spec, fleet, time.monotonic)
    job.launch()
    try:
        return _Watched(case, job, chance, stopping).run()
    finally:
        job.remove()
        _await_end(job, stopping)


def _await_end(job: Job, stopping: Callable[[], bool]) -> None:
    """Return when no rank of it is left: those of the next job come beside the others."""
    machines = [job.fleet.machine(name) for name in job.spec.machines]
    deadline = time.monotonic() + _ENDS_S
    while time.monotonic() < deadline and not stopping():
        if not any(pids for one in machines for pids in job.generations(one).values()):
            return
        time.sleep(_POLL_S)


def failed_run(case: Case, why: str, machines: tuple[str, ...] = ()) -> HangRun:
    """Return a run that says nothing."""
    return HangRun(case.kind.name, machines, failed=why, script=case.script.name)


@dataclass
class _Watched:
    """One job while it is run."""

    case: Case
    job: Job
    chance: random.Random
    stopping: Callable[[], bool]

    def run(self) -> HangRun:
        load = os.getloadavg()[0]
        kind, steps = self.case.kind, self.case.steps
        if not self._trains(steps):
            return self._failed(f"{self._steps()} of {steps} steps in time")
        if not kind.how:
            return self._told(time.time_ns(), None, load)
        generation = self._generation()
        pids = [pid for one in self._machines() for pid in self.job.ranks(one)]
        if len(pids) != self.job.spec.shape.nodes * self.job.spec.shape.ranks_per_node:
            return self._failed(f"{len(pids)} ranks")
        hit_ns = time.time_ns()
        os.kill(self.chance.choice(pids), HIT[kind.how])
        return self._told(hit_ns, self._next_step(hit_ns, generation), load)

    def _trains(self, steps: int) -> bool:
        deadline = time.monotonic() + _STARTS_S
        while time.monotonic() < deadline and not self.stopping():
            if self._steps() >= steps:
                return True
            time.sleep(_POLL_S)
        return False

    def _next_step(self, hit_ns: int, generation: int) -> float | None:
        """Return the seconds until a later generation has made a step."""
        steps = -1
        while (late_s := (time.time_ns() - hit_ns) / 1e9) < BOUND_S and not self.stopping():
            if steps < 0 and self._generation() > generation:
                steps = self._steps()
            if 0 <= steps < self._steps():
                return late_s
            time.sleep(_POLL_S)
        return None

    def _told(self, hit_ns: int, next_step_s: float | None, load: float) -> HangRun:
        events = self._events()
        marks: dict[str, float] = {}
        said: dict[str, str] = {}
        for at_ns, reason, message in events:
            if at_ns > hit_ns:
                marks.setdefault(reason, (at_ns - hit_ns) / 1e9)
                said.setdefault(reason, message)
        return HangRun(
            kind=self.case.kind.name,
            script=self.case.script.name,
            machines=self.job.spec.machines,
            next_step_s=next_step_s,
            marks=marks,
            said=said,
            restarts=max(0, sum(reason == "JobStarting" for _, reason, _ in events) - 1),
            told_before=sum(reason == "JobStalled" and at < hit_ns for at, reason, _ in events),
            load=round(load, 2),
        )

    def _failed(self, why: str) -> HangRun:
        return failed_run(self.case, why, self.job.spec.machines)

    def _events(self) -> list[tuple[int, str, str]]:
        words = ("events", "--json", "--limit", _EVENTS, "--subject", self.job.spec.name)
        done = self.job.fleet.everstep(*words)
        if done.returncode:
            raise OSError(done.stderr.strip() or "no events")
        told = [json.loads(line) for line in done.stdout.splitlines()]
        return [(int(one["at_ns"]), one["reason"], one.get("message", "")) for one in told]

    def _steps(self) -> int:
        with contextlib.suppress(OSError):
            return (self.job.out / "losses").read_bytes().count(b"\n")
        return 0

    def _generation(self) -> int:
        return max((n for one in self._machines() for n in self.job.generations(one)), default=0)

    def _machines(self) -> list[Machine]:
        return [self.job.fleet.machine(name) for name in self.job.spec.machines]
