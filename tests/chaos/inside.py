"""Run of the checker within its namespaces: makes the world, plays the faults, and judges.

Arguments: a folder, which gets all evidence and the report; minutes; and the seed.
"""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from chaos.evidence import Evidence, count_kinds
from chaos.fleet_process import FleetProcess
from chaos.invariants import checked, violations
from chaos.journal_evidence import JournalWitness
from chaos.report import RunReport
from chaos.run import Scene
from chaos.schedule import plan
from chaos.world import World, world

CONTROLLERS = ("ctl-1", "ctl-2", "ctl-3")
RACKS = ("rack-1", "rack-2", "rack-3")
_NODES_PER_RACK, _JOBS = 6, 5
_FINDINGS_PER_S = 0.5
# After the last fault: so long until all is as before.
_WELL_S = 180.0
_SKEW = Path(__file__).parents[1] / "field/machines/skew.c"


def _clock_library(folder: Path) -> Path:
    """Return the library that sets the wall clock of a process apart."""
    library = folder / "skew.so"
    command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(library), str(_SKEW), "-ldl"]
    subprocess.run(command, check=True)
    return library


@contextmanager
def _with_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Have programs that are started meanwhile inherit more variables."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def _play(folder: Path, minutes: float, seed: int) -> RunReport:
    folder.chmod(0o755)
    library = _clock_library(folder)
    for name in (*CONTROLLERS, *RACKS, "database"):
        (folder / name).mkdir(exist_ok=True)
    clocks = folder / "clocks"
    clocks.mkdir()

    def apart(name: str) -> dict[str, str]:
        (clocks / name).write_text("0")
        return {"LD_PRELOAD": str(library), "SKEW_FILE": str(clocks / name)}

    controllers = {name: apart(name) for name in CONTROLLERS}
    database = apart("database")
    home = folder / "world"
    home.mkdir()
    # The database inherits them at its start; controllers and racks have their own.
    with _with_variables(database), world(home, controllers, RACKS) as made:
        racks = [_rack(made, number, apart(name)) for number, name in enumerate(RACKS)]
        scene = Scene(made, racks, clocks)
        witness = _begin(scene)
        print("begun", file=sys.stderr, flush=True)
        scene.play(list(plan(seed, minutes)), minutes * 60)
        trouble = _end(scene)
        evidence = _evidence(scene, witness)
    found = {name: list(lines) for name, lines in violations(evidence).items()}
    found["all is well after the last fault"] = trouble
    return RunReport(
        seed=seed,
        minutes=minutes,
        injected={kind.value: times for kind, times in scene.began.items()},
        skipped={kind.value: times for kind, times in scene.skipped.items()},
        checked={**checked(evidence), "all is well after the last fault": 1},
        violations=found,
        noted=dict(count_kinds(evidence.notes)),
        terms=max((taking.term for taking in evidence.takings), default=0),
        events=len(evidence.rows),
    )


def _rack(made: World, number: int, environ: Mapping[str, str]) -> FleetProcess:
    name = RACKS[number]
    nodes = {
        f"gpu-{number}{at}": f"job-{(number * _NODES_PER_RACK + at) % (_JOBS + 1)}"
        for at in range(_NODES_PER_RACK)
    }
    settings = made.fleet_settings(
        nodes, host=made.cuts.hosts[name], findings_per_s=_FINDINGS_PER_S, seed=number
    )
    return FleetProcess(name, made.folder, settings, made.cuts.enter(name), environ)


def _begin(scene: Scene) -> JournalWitness:
    """Wait until all is as it should be."""
    made = scene.world
    for machine in made.machines:
        machine.start()
    made.until_pair()
    witness = JournalWitness(made.server, made.database)
    witness.begin()
    for rack in scene.racks:
        rack.start()
    made.until(lambda: _connected(scene), "all agents")
    for rack in scene.racks:
        rack.ask("join")
    return witness


def _connected(scene: Scene) -> bool:
    told = [rack.asked("state")["connected"] for rack in scene.racks]
    return told == [_NODES_PER_RACK] * len(RACKS)


def _end(scene: Scene) -> list[str]:
    """End all faults, and wait until all is well and acknowledged; return why it is not."""
    scene.heal()
    for rack in scene.racks:
        rack.ask("talk", 0)

    def well() -> bool:
        settled = all(rack.ask("settled") for rack in scene.racks)
        return settled and _connected(scene) and scene.world.active() is not None

    try:
        scene.world.until(lambda: scene.supervised(well), "all well", _WELL_S)
        scene.world.until(lambda: scene.supervised(scene.world.is_whole), "pair", _WELL_S)
    except AssertionError as error:
        trouble = [str(error)]
    else:
        trouble = []
    for rack in scene.racks:
        rack.end()
    for machine in scene.world.machines:
        if machine.runs:
            machine.signal(signal.SIGTERM)
            machine.wait()
    return trouble


def _evidence(scene: Scene, witness: JournalWitness) -> Evidence:
    comparison = witness.replay()
    return Evidence(
        notes=[note for rack in scene.racks for note in rack.notes()],
        rows=list(witness.rows()),
        ends=witness.ends(),
        written=witness.written(),
        takings=witness.takings(),
        journaled=list(witness.recorded_events()),
        differences=[
            f"event {one.seq} ({one.kind}): recorded {one.recorded}, decided {one.decided}"
            for one in comparison.differences
        ],
        replayed=comparison.events,
        controllers=[end for machine in scene.world.machines for end in machine.ended],
    )


def _terminated(number: int, _: FrameType | None) -> None:
    signal.signal(number, lambda *_: None)
    raise SystemExit(128 + number)


def main(folder: Path, minutes: float, seed: int) -> None:
    """Play a run, and write its report."""
    for one in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, _terminated)
    random.seed(seed)
    report = _play(folder, minutes, seed)
    report.write(folder / "report.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
