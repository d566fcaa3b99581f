"""Run of faults: begins and ends each when its time comes, and starts what has ended again."""

import heapq
import itertools
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import psycopg

from chaos.fleet_process import FleetProcess
from chaos.schedule import FaultKind, Planned
from chaos.world import ControllerMachine, World
from everstep_cli.client.admin import AdminError
from everstep_proto.generated import admin_pb2

_LOOK_S = 0.05
# A service manager waits so long before it starts a controller again.
_RESTART_S = 1.0
# So many of ten faults of a controller are those of the active one.
_ACTIVE_SHARE = 0.7


@dataclass(slots=True)
class Scene:
    """What faults come to: controllers, database and racks of nodes; one clock file each."""

    world: World
    racks: Sequence[FleetProcess]
    clocks: Path
    began: Counter[FaultKind] = field(default_factory=Counter)
    skipped: Counter[FaultKind] = field(default_factory=Counter)
    # What has a fault that lasts, by name.
    _busy: set[str] = field(default_factory=set)
    _ends: list[tuple[float, int, str, Callable[[], object]]] = field(default_factory=list)
    _count: "itertools.count[int]" = field(default_factory=itertools.count)
    _restart_s: dict[str, float] = field(default_factory=dict)

    # --- the run ---------------------------------------------------------------------------------

    def play(self, planned: Sequence[Planned], lasts_s: float) -> None:
        """Have all faults come, in their time."""
        began_s, coming = time.monotonic(), list(reversed(planned))
        while (gone_s := time.monotonic() - began_s) < lasts_s:
            self._end_due()
            self._supervise()
            while coming and coming[-1].at_s <= gone_s:
                self._begin(coming.pop())
            time.sleep(_LOOK_S)

    def _begin(self, fault: Planned) -> None:
        begun = BEGINNINGS[fault.kind](self, fault)
        (self.began if begun else self.skipped)[fault.kind] += 1
        told = "" if begun else ", skipped"
        print(f"{fault.at_s:8.2f} {fault.kind.value} ({fault.lasts_s:g}){told}", file=sys.stderr)

    def heal(self) -> None:
        """End all faults that last, and have everything run."""
        while self._ends:
            heapq.heappop(self._ends)[3]()
        self._busy.clear()
        self.world.heal()

    def _end_due(self) -> None:
        while self._ends and self._ends[0][0] <= time.monotonic():
            _, _, name, end = heapq.heappop(self._ends)
            self._busy.discard(name)
            end()

    def _supervise(self) -> None:
        for machine in self.world.machines:
            if machine.runs:
                continue
            due_s = self._restart_s.setdefault(machine.name, time.monotonic() + _RESTART_S)
            if time.monotonic() >= due_s:
                del self._restart_s[machine.name]
                machine.start()

    def supervised(self, so: Callable[[], object]) -> object:
        """Ask something while controllers that end are started again."""
        self._supervise()
        return so()

    def last(self, name: str, lasts_s: float, end: Callable[[], object]) -> None:
        """Have something end later."""
        self._busy.add(name)
        heapq.heappush(self._ends, (time.monotonic() + lasts_s, next(self._count), name, end))

    # --- targets ---------------------------------------------------------------------------------

    def machine(self, fault: Planned) -> ControllerMachine | None:
        """Return a controller that has no fault: most often the active one."""
        active = self.world.active() if "database" not in self._busy else None
        if active is not None and fault.target < _ACTIVE_SHARE:
            wanted = [active]
        else:
            wanted = [one for one in self.world.machines if one is not active]
        found = [one for one in wanted if one.runs and one.name not in self._busy]
        return found[int(fault.target * 1000) % len(found)] if found else None

    def rack(self, fault: Planned) -> FleetProcess | None:
        """Return a rack that has no fault."""
        found = [one for one in self.racks if one.name not in self._busy and one.runs]
        return found[int(fault.target * 1000) % len(found)] if found else None

    def database_is_free(self) -> bool:
        """Return whether the database has no fault."""
        return "database" not in self._busy

    def step_clock(self, name: str, offset_s: float) -> None:
        """Step a wall clock, from the true time."""
        (self.clocks / name).write_text(f"{offset_s:g}")


# --- faults of controllers -----------------------------------------------------------------------


def _signal(number: int) -> Callable[[Scene, Planned], bool]:
    def begin(scene: Scene, fault: Planned) -> bool:
        if (machine := scene.machine(fault)) is None:
            return False
        machine.signal(number)
        return True

    return begin


def _stop(scene: Scene, fault: Planned) -> bool:
    if (machine := scene.machine(fault)) is None:
        return False
    machine.stand_still()
    scene.last(machine.name, fault.lasts_s, machine.go_on)
    return True


def _cut(scene: Scene, fault: Planned) -> bool:
    if (machine := scene.machine(fault)) is None:
        return False
    scene.world.cut(machine.name)
    scene.last(machine.name, fault.lasts_s, lambda: scene.world.heal(machine.name))
    return True


def _hand_over(scene: Scene, _: Planned) -> bool:
    active = scene.world.active() if scene.database_is_free() else None
    if active is None or not active.runs:
        return False
    order = admin_pb2.HandOverRequest(reason="an hour of faults", operator="chaos")
    # Where the answer does not come it may hand over all the same.
    active.was_asked = True
    with suppress(AdminError), scene.world.admin(active, 2.0) as admin:
        admin.call(lambda stub: stub.HandOver, order)
        return True
    return False


def _step_controller(scene: Scene, fault: Planned) -> bool:
    if (machine := scene.machine(fault)) is None:
        return False
    scene.step_clock(machine.name, fault.lasts_s)
    return True


# --- faults of the database ----------------------------------------------------------------------


def _database_kill(scene: Scene, fault: Planned) -> bool:
    if not scene.database_is_free():
        return False
    server = scene.world.server
    server.kill()
    scene.last("database", fault.lasts_s, server.start)
    return True


def _database_restart(scene: Scene, fault: Planned) -> bool:
    if not scene.database_is_free():
        return False
    server = scene.world.server
    server.stop()
    scene.last("database", fault.lasts_s, server.start)
    return True


def _database_stop(scene: Scene, fault: Planned) -> bool:
    if not scene.database_is_free():
        return False
    still = ExitStack()
    still.enter_context(scene.world.server.paused())
    scene.last("database", fault.lasts_s, still.close)
    return True


def _step_database(scene: Scene, fault: Planned) -> bool:
    scene.step_clock("database", fault.lasts_s)
    return True


def _break_connections(scene: Scene, _: Planned) -> bool:
    if not scene.database_is_free():
        return False
    with suppress(psycopg.Error):
        scene.world.server.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where application_name like 'everstep-controller%'"
        )
        return True
    return False


# --- faults of agents ----------------------------------------------------------------------------


def _agents_kill(scene: Scene, fault: Planned) -> bool:
    if (rack := scene.rack(fault)) is None:
        return False
    rack.kill()
    scene.last(rack.name, _RESTART_S, rack.start)
    return True


def _agents_stop(scene: Scene, fault: Planned) -> bool:
    if (rack := scene.rack(fault)) is None:
        return False
    rack.signal(signal.SIGSTOP)
    scene.last(rack.name, fault.lasts_s, lambda: rack.signal(signal.SIGCONT))
    return True


def _agents_cut(scene: Scene, fault: Planned) -> bool:
    if (rack := scene.rack(fault)) is None:
        return False
    scene.world.cut(rack.name)
    scene.last(rack.name, fault.lasts_s, lambda: scene.world.heal(rack.name))
    return True


def _step_agents(scene: Scene, fault: Planned) -> bool:
    if (rack := scene.rack(fault)) is None:
        return False
    scene.step_clock(rack.name, fault.lasts_s)
    return True


def _find_fatal(scene: Scene, fault: Planned) -> bool:
    if (rack := scene.rack(fault)) is None:
        return False
    nodes = list(rack.settings.nodes)
    node = nodes[int(fault.target * 10_000) % len(nodes)]
    rack.ask("fatal", node)
    scene.last(rack.name, fault.lasts_s, lambda: rack.ask("clear", node))
    return True


_K = FaultKind
BEGINNINGS: Mapping[FaultKind, Callable[[Scene, Planned], bool]] = MappingProxyType(
    {
        _K.KILL: _signal(signal.SIGKILL),
        _K.TERMINATE: _signal(signal.SIGTERM),
        _K.STOP: _stop,
        _K.CUT: _cut,
        _K.HAND_OVER: _hand_over,
        _K.CONTROLLER_CLOCK: _step_controller,
        _K.DATABASE_KILL: _database_kill,
        _K.DATABASE_RESTART: _database_restart,
        _K.DATABASE_STOP: _database_stop,
        _K.DATABASE_CLOCK: _step_database,
        _K.CONNECTIONS: _break_connections,
        _K.AGENTS_KILL: _agents_kill,
        _K.AGENTS_STOP: _agents_stop,
        _K.AGENTS_CUT: _agents_cut,
        _K.AGENTS_CLOCK: _step_agents,
        _K.FATAL_FINDING: _find_fatal,
    }
)
