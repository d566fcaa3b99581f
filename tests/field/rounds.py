"""Rounds of the field: a fleet is booted, jobs run, faults come, and everything is recorded."""

import contextlib
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from field.faults.blows import BLOWS
from field.faults.schedule import Planned, plan
from field.faults.world import Done, NothingToHitError, World
from field.jobs.reference import References
from field.jobs.running import Job, Spec, choose_machines
from field.jobs.shapes import SHAPES, Shape
from field.machines.fleet import Fleet, booted_fleet
from field.machines.image import REPOSITORY, WHEELS
from field.machines.site import USERS, make_site
from field.observation.canary import Canary
from field.observation.leftovers import left_behind
from field.observation.logs import read_logs
from field.observation.records import Excuse, Fault, JobResult, Restore, Round
from field.observation.watch import LossWatch, Watch, watch_losses

_BOOTED = Fault("machines-booted", -300.0, 0.0, excuses=(Excuse.WORDS,), aftermath_s=10.0)
# A fault for which there is no target waits for one so long; the next one comes at its own time.
_TARGET_S = 10.0
_LOOK_S = 1.0
_JOURNAL = "var/lib/everstep-controller/journal.sqlite"


class StoppedError(Exception):
    """A round was told to end before its time: what is known of it says nothing."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is told: size, time, seed, and where its records are kept."""

    machines: int
    round_s: float
    seed: int
    folder: Path
    image: Path
    tracks: int
    torch_ranks: int
    steps: int
    step_s: float
    memory_bytes: int
    commit: str = ""
    # Of the controllers' automation; "": as shipped, but in every third round.
    mode: str = ""
    shapes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    # How long jobs may go on after the last fault is over.
    patience_s: float = 240.0


@dataclass
class Play:
    """A round while it is played."""

    options: Options
    number: int
    fleet: Fleet
    references: References
    begun: float = field(default_factory=time.monotonic)
    begun_us: int = field(default_factory=lambda: time.time_ns() // 1000)
    stopping: threading.Event = field(default_factory=threading.Event)
    running: list[Job] = field(default_factory=list)
    results: list[JobResult] = field(default_factory=list)
    restores: list[Restore] = field(default_factory=list)
    # Until all is up, agents find no controller.
    faults: list[Fault] = field(default_factory=lambda: [_BOOTED])
    left_out: list[str] = field(default_factory=list)
    # What ended a thread of it.
    broken: list[Exception] = field(default_factory=list)
    _counted: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def seed(self) -> int:
        """Return the seed of this round."""
        return self.options.seed * 1000 + self.number

    def now(self) -> float:
        """Return the seconds since the round began."""
        return time.monotonic() - self.begun

    def stop(self) -> None:
        """End it: faults are undone at once, and no job is waited for."""
        self.stopping.set()
        self.references.stop()
        for job in self.jobs():
            job.stopping = True

    def start(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        """Start a part of it beside the others; one that breaks ends the round."""

        def do() -> None:
            try:
                work(*arguments)
            except Exception as error:  # noqa: BLE001 - whatever it is, the round ends by it
                self.broken.append(error)
                self.stop()

        thread = threading.Thread(target=do, daemon=True)
        thread.start()
        return thread

    def jobs(self) -> list[Job]:
        """Return the jobs that run."""
        with self._lock:
            return list(self.running)

    def tracks(self) -> list[Iterator[Shape]]:
        """Return for each track the shapes of its jobs: in every other one they prove restores."""
        there = self._shapes()
        proving = [one for one in there if one.proves_restores]
        others = [one for one in there if not one.proves_restores]
        turns = [self._turns(proving or others), self._turns(others or proving)]
        return [turns[number % 2] for number in range(self.options.tracks)]

    def _shapes(self) -> list[Shape]:
        """Return the shapes that can run here, and note the others."""
        there = []
        for one in SHAPES:
            if self.options.shapes and one.name not in self.options.shapes:
                continue
            if find_spec(one.needs) is None:
                self.left_out.append(f"{one.name}: {one.needs} is not here")
            elif one.nodes > self.options.machines:
                self.left_out.append(f"{one.name}: it needs {one.nodes} machines")
            else:
                there.append(one)
        return there

    def _turns(self, shapes: Sequence[Shape]) -> Iterator[Shape]:
        """Yield shapes in turn, for ever; of a round, in an order of its own."""
        offset = self.number * self.options.tracks * 2
        while True:
            for number in range(len(shapes)):
                yield shapes[(number + offset) % len(shapes)]

    def run_track(self, shapes: Iterator[Shape]) -> None:
        """Run one job after the other until the round's time is over."""
        while self.now() < self.options.round_s and not self.stopping.is_set():
            with self._lock:
                shape = next(shapes)
                while shape.torch_ranks and not self._torch_fits(shape):
                    shape = next(shapes)
                job = self._next_job(shape)
                self.running.append(job)
            try:
                self._run_job(job)
            finally:
                with self._lock:
                    self.running.remove(job)

    def _torch_fits(self, shape: Shape) -> bool:
        alive = sum(job.spec.shape.torch_ranks for job in self.running)
        return alive + shape.torch_ranks <= self.options.torch_ranks

    def _next_job(self, shape: Shape) -> Job:
        self._counted += 1
        chance = random.Random(f"{self.seed} {self._counted}")
        spec = Spec(
            name=f"{shape.name}-{self._counted}",
            shape=shape,
            user=USERS[self._counted % len(USERS)],
            machines=choose_machines(self.fleet.site.names, shape.nodes, chance),
            steps=self.options.steps * shape.longer,
            step_s=self.options.step_s,
            seed=self.options.seed,
        )
        return Job(spec, self.fleet, self.now)

    def _run_job(self, job: Job) -> None:
        shape, spec = job.spec.shape, job.spec
        job.launch()
        left_s = max(0.0, self.options.round_s - self.now())
        patience_s = max(left_s, spec.steps * spec.step_s) + shape.pauses_s
        finished = job.await_end(patience_s + self.options.patience_s)
        # The wait for its reference is none of its time.
        ended_s = self.now()
        if self.stopping.is_set():
            job.remove()
            return
        reference = self.references.of(shape, spec.seed, spec.steps)
        self.results.append(job.result(reference, finished, ended_s))
        self.restores += job.restores(reference)
        job.remove()
        print(f"{self.now():6.0f} s  {spec.name} ended: {job.codes()}", flush=True)

    def run_faults(self, planned: list[Planned], wheel: str) -> None:
        """Do one fault after the other when its time comes, and undo each when its time is over."""
        world = World(self.fleet, self.jobs, random.Random(), wheel)
        with ThreadPoolExecutor(8) as undoing:
            for one in planned:
                if self.stopping.wait(max(0.0, one.at_s - self.now())):
                    return
                self._do(one, world, undoing)

    def _do(self, one: Planned, world: World, undoing: ThreadPoolExecutor) -> None:
        world.chance = random.Random(one.seed)
        try:
            begun_s, done = self._hit(one, world)
        except NothingToHitError as error:
            self._note(one, self.now(), Done(), str(error))
            return
        except Exception as error:  # noqa: BLE001 - it is told, and the next fault comes
            self._note(one, self.now(), Done(), f"{type(error).__name__}: {error}"[:500])
            return
        world.held.update(done.nodes if one.lasts_s else ())
        print(f"{begun_s:6.0f} s  {one.kind.name} {' '.join(done.nodes)} {done.detail}", flush=True)
        undoing.submit(self._undo, one, begun_s, done, world)

    def _hit(self, one: Planned, world: World) -> tuple[float, Done]:
        """Do a fault, when there is a target for it; return when that was, and what was done.

        Raises NothingToHitError where there is none for a while.
        """
        until_s = self.now() + _TARGET_S
        while True:
            begun_s = self.now()
            try:
                return begun_s, BLOWS[one.kind.blow](world)
            except NothingToHitError:
                if begun_s > until_s or self.stopping.wait(_LOOK_S):
                    raise

    def _undo(self, one: Planned, begun_s: float, done: Done, world: World) -> None:
        until_s = self.now() + one.lasts_s
        while (left_s := until_s - self.now()) > 0 and not done.is_over():
            if self.stopping.wait(min(left_s, _LOOK_S)):
                break
        try:
            done.undo()
        except Exception as error:  # noqa: BLE001 - a fleet that stays broken shows it
            done = replace(done, detail=f"not undone: {type(error).__name__}: {error}"[:500])
            print(f"{self.now():6.0f} s  {one.kind.name} {done.detail}", flush=True)
        world.held.difference_update(done.nodes)
        self._note(one, begun_s, done, "")

    def _note(self, one: Planned, begun_s: float, done: Done, failed: str) -> None:
        if failed:
            print(f"{begun_s:6.0f} s  {one.kind.name} not done: {failed}", flush=True)
        nodes = self.fleet.site.names if one.kind.everywhere and not failed else done.nodes
        kind = one.kind
        self.faults.append(
            Fault(
                kind.name, begun_s, self.now(), tuple(nodes), done.job, kind.excuses,
                kind.aftermath_s, done.detail, failed, done.nodes if kind.everywhere else (),
            )
        )  # fmt: skip


def mode_of(number: int) -> str:
    """Return what automation is told to do in a round: as shipped, in the first and most others."""
    return "enforce" if number % 3 == 1 else "advise"


def play(options: Options, number: int, work: Path, on_stop: Callable[[Play], None]) -> Round:
    """Boot a fleet, play one round, and return its record."""
    site = make_site(options.machines)
    mode = options.mode or mode_of(number)
    with booted_fleet(site, work, options.image, options.memory_bytes, mode) as fleet:
        references = References(fleet.controller.root, work / "references")
        playing = Play(options, number, fleet, references)
        on_stop(playing)
        return _play(playing)


def _play(playing: Play) -> Round:
    options, fleet = playing.options, playing.fleet
    (wheel,) = (fleet.controller.root / WHEELS.strip("/")).glob("*.whl")
    planned = plan(playing.seed, options.round_s, options.machines, options.faults)
    losses, over = LossWatch(playing.now), threading.Event()
    with Canary(playing.now) as canary, _watch(playing) as watch:
        watching = watch_losses(losses, lambda: _losses(playing), over)
        threads = [
            *(playing.start(playing.run_track, shapes) for shapes in playing.tracks()),
            playing.start(playing.run_faults, planned, f"{WHEELS}/{wheel.name}"),
        ]
        for one in threads:
            one.join()
        over.set()
        watching.join()
        if playing.broken:
            raise playing.broken[0]
        if playing.stopping.is_set():
            raise StoppedError
        watch.look_at_all()
        left = left_behind(fleet)
    return Round(
        number=playing.number,
        seed=playing.seed,
        lasted_s=playing.now(),
        machines={one.name: one.rack for one in fleet.site.places},
        faults=tuple(sorted(playing.faults, key=lambda one: one.begun_s)),
        nodes=tuple(watch.nodes),
        jobs=tuple(watch.jobs),
        redone=tuple(losses.redone),
        restores=tuple(playing.restores),
        results=tuple(playing.results),
        lines=tuple(read_logs(fleet, playing.begun_us)),
        findings=tuple(watch.findings),
        events=watch.events,
        late=tuple(canary.late),
        replay=_replay(fleet),
        left_behind=tuple(left),
        left_out=tuple(dict.fromkeys(playing.left_out)),
        observation_gaps=tuple(watch.gaps),
        date=time.strftime("%Y-%m-%d"),
        commit=options.commit,
        load=round(os.getloadavg()[2], 2),
        mode=fleet.mode,
    )


def _watch(playing: Play) -> Watch:
    return Watch(playing.fleet, playing.now, playing.begun_us)


def _losses(playing: Play) -> list[tuple[str, Path]]:
    return [(job.spec.name, job.out / "losses") for job in playing.jobs()]


def _replay(fleet: Fleet) -> str:
    """Stop the controller, replay a copy of its journal; return what differs."""
    with contextlib.suppress(Exception):
        fleet.controller.run("systemctl", "stop", "everstep-controller")
    copy = fleet.work / "journal"
    copy.mkdir()
    for path in (fleet.controller.root / _JOURNAL).parent.glob("journal.sqlite*"):
        shutil.copy(path, copy)
    program = REPOSITORY / ".venv/bin/everstep-controller"
    done = subprocess.run(
        [program, "replay", copy / "journal.sqlite"], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else (done.stdout + done.stderr)[-2000:]
