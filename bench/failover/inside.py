"""Failover of real processes, in namespaces of their own; prints samples as lines of JSON.

Arguments: a part of the benchmark, how many rounds, how long a pause lasts, and a seed.
"""

import json
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType, MappingProxyType

import psycopg
from failover.rows import Samples

from chaos.evidence import ChainEnds, Evidence
from chaos.fleet_process import FleetProcess
from chaos.invariants import acknowledged, acknowledged_once, one_writer, terms_at_agents
from chaos.journal_evidence import JournalWitness
from chaos.real_jobs import RealJob
from chaos.world import ControllerMachine, World, world
from everstep_proto.generated import admin_pb2

CONTROLLERS = ("ctl-1", "ctl-2")
_NODES, _JOBS = 64, 20
_WAITING_MAX = 4
_PATIENCE_S = 180.0
_LOOK_S = 0.01
_DURABLE = ("fsync=on", "full_page_writes=on")
# Each node raises and clears so many findings a second, where agents talk all the time.
_FINDINGS_PER_S = 1.0


def fleet_nodes() -> dict[str, str]:
    """Return the job of each node: three nodes each, and some have a spare."""
    return {f"gpu-{at:02}": f"job-{at // 3 % _JOBS:02}" for at in range(_NODES)}


@dataclass(slots=True)
class Scene:
    """A fleet with its controllers, and what is measured of it."""

    world: World
    fleet: FleetProcess
    jobs: tuple[RealJob, ...]
    rounds: int
    pause_s: float
    chance: random.Random

    def begin(self) -> None:
        """Wait until all jobs run."""
        for machine in self.world.machines:
            machine.start()
        self.world.until_pair()
        self.fleet.start()
        self.until(lambda: self.fleet.asked("state")["connected"] == _NODES, "all agents")
        self.until(self.settled, "all checks")
        self.fleet.ask("join")
        self.until(self.whole, "all jobs")
        for job in self.jobs:
            job.start()

    def until(self, so: Callable[[], object], what: str) -> None:
        """Wait for something."""
        self.world.until(so, what, _PATIENCE_S)

    def settled(self) -> bool:
        """Return whether all that agents recorded is acknowledged."""
        return bool(self.fleet.ask("settled"))

    def whole(self) -> bool:
        """Return whether all agents are connected, and jobs have ranks.

        Of those that lost a node just now some wait before they start again.
        """
        told = self.fleet.asked("state")
        return told["connected"] == _NODES and int(str(told["running"])) >= _JOBS - _WAITING_MAX

    def generations(self) -> dict[str, int]:
        """Return the newest generation of each simulated job, and of the real ones."""
        told = self.fleet.asked("state")["generations"]
        assert isinstance(told, dict)
        return told | {job.name: job.generation for job in self.jobs}

    def settle(self) -> ControllerMachine:
        """Wait until nothing of a round is left; return the active controller."""
        active = self.world.until_pair()
        self.until(self.whole, "all jobs")
        self.until(self.settled, "all acknowledgements")
        for job in self.jobs:
            lines = job.lines()
            self.until(lambda job=job, lines=lines: job.lines() > lines + 5, f"steps of {job.name}")  # type: ignore[misc]
        return active


# --- faults --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the active controller, and how it ends."""

    what: str
    target_s: float
    begin: Callable[[World, ControllerMachine], None]
    end: Callable[[World, ControllerMachine], None]


def _kill(_: World, machine: ControllerMachine) -> None:
    machine.signal(signal.SIGKILL)


def _start_again(_: World, machine: ControllerMachine) -> None:
    machine.wait()
    machine.start()


def _go_on(_: World, machine: ControllerMachine) -> None:
    machine.go_on()
    machine.wait()
    machine.start()


def _heal(world_: World, machine: ControllerMachine) -> None:
    world_.heal(machine.name)
    machine.wait()
    machine.start()


FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "killed": Fault("active killed (SIGKILL)", 6.0, _kill, _start_again),
        "stopped": Fault(
            "active stands still (SIGSTOP)", 10.0, lambda _, one: one.stand_still(), _go_on
        ),
        "cut": Fault(
            "no packet of the active one passes", 10.0, lambda all_, one: all_.cut(one.name), _heal
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Round:
    """What a fault came to."""

    acted_s: float
    stepped_s: float
    restarted: int
    active_s: float


def _round(scene: Scene, fault: Fault, number: int) -> Round:
    victim = scene.settle()
    before = scene.generations()
    # Not one of the jobs that have a spare.
    node = f"gpu-{3 * (2 + number % 18) + number // 18 % 3:02}"
    job = scene.jobs[number % len(scene.jobs)]
    began_s = time.monotonic()
    fault.begin(scene.world, victim)
    scene.fleet.ask("fatal", node)
    killed_s = time.monotonic()
    generation = job.kill_rank()
    successor = next(one for one in scene.world.machines if one is not victim)
    acted_s = stepped_s = active_s = 0.0
    deadline_s = began_s + _PATIENCE_S
    while not (acted_s and stepped_s) and time.monotonic() < deadline_s:
        if not acted_s and (found := scene.fleet.ask("acted", node)):
            acted_s = float(str(found)) - began_s
        if not stepped_s and job.lines(generation):
            stepped_s = time.monotonic() - killed_s
        if not active_s and "takes over" in successor.log.read_text():
            active_s = time.monotonic() - began_s
        time.sleep(_LOOK_S)
    fault.end(scene.world, victim)
    scene.fleet.ask("clear", node)
    after = scene.generations()
    others = [name for name in before if name not in (scene.fleet.settings.nodes[node], job.name)]
    restarted = sum(after[name] > before[name] for name in others)
    told = f"round {number}: {node} acted on after {acted_s:.2f} s, {job.name} steps after "
    print(f"{told}{stepped_s:.2f} s, taken after {active_s:.2f} s", file=sys.stderr, flush=True)
    return Round(acted_s, stepped_s, restarted, active_s)


def measure_fault(scene: Scene, name: str) -> Iterator[Samples]:
    """Yield what a fault comes to."""
    fault = FAULTS[name]
    rounds = [_round(scene, fault, number) for number in range(scene.rounds)]
    target = fault.target_s
    acted = [one.acted_s or _PATIENCE_S for one in rounds]
    yield Samples(f"{fault.what}: a fatal finding is acted on", "s", acted, target)
    stepped = [one.stepped_s or _PATIENCE_S for one in rounds]
    yield Samples(f"{fault.what}: a killed rank's job makes a new step", "s", stepped, target)
    taken = [one.active_s for one in rounds if one.active_s]
    yield Samples(f"{fault.what}: the standby has taken over", "s", taken)
    restarted = [one.restarted for one in rounds]
    yield Samples(f"{fault.what}: jobs restarted by the takeover", "jobs", restarted, 0, "sum")


def measure_kills(scene: Scene, _: str) -> Iterator[Samples]:
    """Yield what is lost where the active one is killed again and again."""
    witness = JournalWitness(scene.world.server, scene.world.database)
    witness.begin()
    for number in range(scene.rounds):
        active = scene.world.until_pair()
        scene.until(lambda: scene.fleet.asked("state")["connected"] == _NODES, "all agents")
        time.sleep(scene.chance.uniform(0.0, 1.0))
        active.kill()
        active.start()
        if number % 10 == 9:
            print(f"{number + 1} kills", file=sys.stderr, flush=True)
    yield from _judged(scene, witness, f"{scene.rounds} kills at random instants")


def _judged(scene: Scene, witness: JournalWitness, what: str) -> Iterator[Samples]:
    """Yield what is in the journal, once all is acknowledged."""
    scene.fleet.ask("talk", 0)
    scene.until(scene.settled, "all acknowledgements")
    scene.fleet.end()
    for machine in scene.world.machines:
        machine.signal(signal.SIGTERM)
    for machine in scene.world.machines:
        machine.wait()
    notes, written, takings = scene.fleet.notes(), witness.written(), witness.takings()
    journaled = list(witness.recorded_events())
    evidence = Evidence(
        notes, (), ChainEnds(0, b"", 0, b""), written, takings, journaled, (), 0, ()
    )
    comparison = witness.replay()
    yield Samples(f"{what}: records acknowledged", "", [len(acknowledged(notes))], None, "sum")
    for name, found in (
        ("acknowledged records lost or doubled", list(acknowledged_once(evidence))),
        ("rows written by one that was superseded", list(one_writer(evidence))),
        ("orders of it that an agent took", list(terms_at_agents(evidence))),
        ("decisions that differ in a replay", [one.kind for one in comparison.differences]),
    ):
        print("\n".join(found[:20]), file=sys.stderr, end="\n" if found else "")
        yield Samples(f"{what}: {name}", "", [len(found)], 0, "sum")


class _LeaseWatch(threading.Thread):
    """Watch of the lease: when it was given back, and when it was taken."""

    def __init__(self, world_: World) -> None:
        super().__init__(daemon=True)
        self._url = world_.server.url(world_.database)
        self._over = threading.Event()
        self.given_back_s = self.taken_s = 0.0

    def run(self) -> None:
        """Look at it again and again."""
        asked = b"select term, holder from everstep.lease"
        with psycopg.connect(self._url, autocommit=True) as connection:
            first = connection.execute(asked).fetchone()
            while not self.taken_s and not self._over.wait(_LOOK_S):
                now = connection.execute(asked).fetchone()
                assert first is not None
                assert now is not None
                if not now[1]:
                    self.given_back_s = self.given_back_s or time.monotonic()
                elif now[0] > first[0]:
                    self.taken_s = time.monotonic()

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        self.join()


def measure_hand_over(scene: Scene, _: str) -> Iterator[Samples]:
    """Yield how long a hand-over takes until a record is acknowledged by the successor."""
    took: list[float] = []
    taken: list[float] = []
    for _number in range(scene.rounds):
        active = scene.settle()
        scene.fleet.ask("talk", 0)
        scene.until(scene.settled, "all acknowledgements")
        successor = next(one for one in scene.world.machines if one is not active)
        watch = _LeaseWatch(scene.world)
        watch.start()
        began_s = time.monotonic()
        with scene.world.admin(active) as admin:
            order = admin_pb2.HandOverRequest(reason="a benchmark", operator="bench")
            admin.call(lambda stub, order=order: stub.HandOver, order)  # type: ignore[misc]
        # Some node's record is acknowledged by the successor, whichever is first.
        took.append(scene.fleet.seconds("acknowledged_by", successor.address) - began_s)
        watch.end()
        taken.append(watch.taken_s - began_s)
        print(f"taken after {taken[-1]:.2f} s, {took[-1]:.2f} s", file=sys.stderr, flush=True)
        active.wait()
        active.start()
    yield Samples("hand-over: a record acknowledged by the successor", "s", took, 1.0, "median")
    yield Samples("hand-over: the same", "s", took)
    yield Samples("hand-over: the lease is taken", "s", taken)


def measure_pause(scene: Scene, _: str) -> Iterator[Samples]:
    """Yield what a controller does that stood still and was superseded."""
    witness = JournalWitness(scene.world.server, scene.world.database)
    witness.begin()
    for _number in range(scene.rounds):
        active = scene.world.until_pair()
        scene.until(lambda: scene.fleet.asked("state")["connected"] == _NODES, "all agents")
        time.sleep(scene.chance.uniform(0.0, 1.0))
        active.stand_still()
        time.sleep(scene.pause_s)
        active.go_on()
        active.wait()
        active.start()
    what = f"{scene.rounds} times stopped for {scene.pause_s:g} s, and resumed"
    yield from _judged(scene, witness, what)


MEASURES: Mapping[str, Callable[[Scene, str], Iterator[Samples]]] = MappingProxyType(
    {
        **dict.fromkeys(FAULTS, measure_fault),
        "kills": measure_kills,
        "hand-over": measure_hand_over,
        "pause": measure_pause,
    }
)


@contextmanager
def _scene(part: str, rounds: int, pause_s: float, seed: int) -> Iterator[Scene]:
    folder = Path(tempfile.mkdtemp(prefix="esf"))
    try:
        with ExitStack() as ends:
            made = ends.enter_context(
                world(folder, {one: {} for one in CONTROLLERS}, options=_DURABLE)
            )
            talks = part in ("kills", "pause")
            settings = made.fleet_settings(
                fleet_nodes(), findings_per_s=_FINDINGS_PER_S if talks else 0.0, seed=seed
            )
            jobs: tuple[RealJob, ...] = ()
            if part in FAULTS:
                jobs = (
                    RealJob(made, "real-two", ("real-1", "real-2")),
                    RealJob(made, "real-one", ("real-3",)),
                )
            for job in jobs:
                ends.enter_context(closing(job))
            fleet = FleetProcess("fleet", folder, settings)
            yield Scene(made, fleet, jobs, rounds, pause_s, random.Random(seed))
            if fleet.runs:
                fleet.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _end(number: int, _: FrameType | None) -> None:
    signal.signal(number, lambda *_: None)
    raise SystemExit(128 + number)


def main(part: str, rounds: int, pause_s: float, seed: int) -> None:
    """Measure a part, and print its samples."""
    for one in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, _end)
    with _scene(part, rounds, pause_s, seed) as scene:
        scene.begin()
        for samples in MEASURES[part](scene, part):
            print(json.dumps(asdict(samples)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
