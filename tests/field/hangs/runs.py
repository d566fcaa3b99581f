"""Runs of hangs: a job trains on two machines, one of its ranks hangs, and what comes of it."""

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType

from field.jobs.running import Job, Spec, choose_machines
from field.jobs.shapes import Shape
from field.machines.fleet import Fleet
from field.machines.machine import Machine
from field.machines.site import USERS

# What never came has taken so long.
BOUND_S = 120.0
# Of steps of 0.1 s: the launcher has learned by then how long ranks stand still as a rule.
_WARM_STEPS = 250
_STEP_S = 0.1
_STARTS_S = 240.0
_POLL_S = 0.05
_EVENTS = "1000"
_CHECKPOINT = ("--checkpoint", "{out}/checkpoint.npz", "--checkpoint-every")
_OFTEN = (*_CHECKPOINT, "20")
_EVALUATES = (*_OFTEN, "--evaluate-every", "110", "--evaluate-seconds", "20")
_HIT: Mapping[str, signal.Signals] = MappingProxyType(
    {
        "gil": signal.SIGUSR1,
        "loop": signal.SIGUSR2,
        "stop": signal.SIGSTOP,
        "dead": signal.SIGKILL,
    }
)
# Those of a script that takes the signal itself.
_WITH_THE_LOCK = ("gil", "loop")


@dataclass(frozen=True, slots=True)
class Kind:
    """What a script does, and what is done to one of its ranks; "": it pauses by itself."""

    name: str
    how: str
    arguments: tuple[str, ...]
    # The rank is hit after so many steps; where none is, the run ends then.
    steps: int = _WARM_STEPS

    @property
    def new_step_s(self) -> float:
        """Return within which time the job should step again.

        A computation that keeps the lock may end: the product takes it for endless after 15 s.
        """
        return 25.0 if self.how == "loop" else 10.0

    @property
    def shape(self) -> Shape:
        """Return the job: two machines, two ranks on each, steps that are printed."""
        if self.how in _WITH_THE_LOCK:
            return Shape(self.how, "hanging.py", ("plain.py", *self.arguments), ranks_per_node=2)
        return Shape(self.name.split(",")[0], "plain.py", self.arguments, ranks_per_node=2)


KINDS = (
    *(Kind(how, how, _OFTEN) for how in _HIT),
    # Two evaluations of 20 s have ended by then, and the next one is far.
    *(Kind(f"{how}, after an evaluation", how, _EVALUATES, 240) for how in _HIT),
    Kind("evaluation", "", _EVALUATES, 130),
    Kind("loader", "", (*_OFTEN, "--load-seconds", "20"), 60),
    Kind("save", "", (*_CHECKPOINT, "100", "--save-seconds", "20"), 130),
    Kind("packing", "", (*_CHECKPOINT, "100", "--pack-seconds", "20"), 130),
)


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


class Runs:
    """What is still to be run: it goes out in an order that a seed gives, and is kept when done."""

    def __init__(self, path: Path, repeats: int, only: tuple[str, ...], seed: int) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._left = left(kept(path), repeats, only)
        random.Random(seed).shuffle(self._left)
        self._numbers = iter(range(len(kept(path)), 1_000_000))
        self.count = len(self._left)

    def take(self) -> Iterator[tuple[int, Kind]]:
        """Yield one after the other, to several threads, each once."""
        while True:
            with self._lock:
                if not self._left:
                    return
                number, kind = next(self._numbers), self._left.pop()
            yield number, kind

    def keep(self, run: HangRun) -> None:
        """Add one that is over to those that are kept."""
        with self._lock, self._path.open("a") as file:
            file.write(json.dumps(asdict(run)) + "\n")


def kept(path: Path) -> list[HangRun]:
    """Return the runs that a file keeps."""
    lines = path.read_text().splitlines() if path.exists() else []
    told = map(json.loads, lines)
    return [HangRun(**{**one, "machines": tuple(one["machines"])}) for one in told]


def left(found: list[HangRun], repeats: int, only: tuple[str, ...] = ()) -> list[Kind]:
    """Return what is missing until each kind has run so often; a run that failed is run again."""
    done = [one.kind for one in found if not one.failed]
    wanted = [one for one in KINDS if not only or one.name in only]
    return [one for one in wanted for _ in range(repeats - done.count(one.name))]


def run(kind: Kind, number: int, fleet: Fleet, stopping: Callable[[], bool]) -> HangRun:
    """Train, hit one rank, and wait until the job trains again."""
    chance = random.Random(number)
    names = [name for name in fleet.site.names if name != fleet.control]
    shape = kind.shape
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
        return _Watched(kind, job, chance, stopping).run()
    finally:
        job.remove()


@dataclass
class _Watched:
    """One job while it is run."""

    kind: Kind
    job: Job
    chance: random.Random
    stopping: Callable[[], bool]

    def run(self) -> HangRun:
        load = os.getloadavg()[0]
        if not self._trains(self.kind.steps):
            return self._failed(f"{self._steps()} of {self.kind.steps} steps in time")
        if not self.kind.how:
            return self._told(time.time_ns(), None, load)
        generation = self._generation()
        pids = [pid for one in self._machines() for pid in self.job.ranks(one)]
        if len(pids) != self.job.spec.shape.nodes * self.job.spec.shape.ranks_per_node:
            return self._failed(f"{len(pids)} ranks")
        hit_ns = time.time_ns()
        os.kill(self.chance.choice(pids), _HIT[self.kind.how])
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
            kind=self.kind.name,
            machines=self.job.spec.machines,
            next_step_s=next_step_s,
            marks=marks,
            said=said,
            restarts=max(0, sum(reason == "JobStarting" for _, reason, _ in events) - 1),
            told_before=sum(reason == "JobStalled" and at < hit_ns for at, reason, _ in events),
            load=round(load, 2),
        )

    def _failed(self, why: str) -> HangRun:
        return HangRun(self.kind.name, self.job.spec.machines, failed=why)

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
