"""Liveness of real processes: a controller and six agents in network namespaces, and their faults.

Run by the benchmark in a network namespace of its own; prints a row of JSON for each case.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

from harness.processes import ROOT, START_PATIENCE_S, module_command, running, with_paths
from liveness.rows import Round, Row

from everstep_cli.client.admin import AdminError, list_nodes
from everstep_cli.demo import reaper
from everstep_proto.generated import admin_pb2
from integration.certified_places import certified_places
from integration.real_fleet import JOB, TRAINING, RealFleet, running_fleet
from real.cut_network import Network, network

_NODES = tuple(f"node-{number}" for number in range(1, 7))
_MEMBERS = 3
# More steps than all cases need: their end ends the job.
_SCRIPT = (str(TRAINING), "--steps", "100000", "--step-seconds-min", "0.1")
_STEPS_MADE = 20
_PATIENCE_S = START_PATIENCE_S
_EVENTS_MAX = 5000
# States in which a node takes ranks, and the findings about silences.
_FINE = ("healthy", "suspect", "probation")
_CONDITIONS = ("AgentGone", "AgentHung", "ProbesBlocked")


@dataclass(slots=True)
class World:
    """The fleet that a case breaks, and the ways to break it."""

    fleet: RealFleet
    cuts: Network
    # Processes that are stopped until the round is over.
    stopped: list[int] = field(default_factory=list)

    # --- who there is ----------------------------------------------------------------------------

    def member(self) -> str:
        """Return a node with ranks, not that of rank 0."""
        return list(self.fleet.job().members)[-1]

    def spare(self) -> str:
        """Return a node without ranks."""
        members = self.fleet.job().members
        return next(name for name in reversed(_NODES) if name not in members)

    def settle(self) -> None:
        """Wait until all nodes are connected and can take ranks, and the job makes steps."""
        self.fleet.until("all nodes", _PATIENCE_S, self._whole)
        reached = self.fleet.step()
        wanted = reached + _STEPS_MADE
        self.fleet.until("steps", _PATIENCE_S, lambda: self.fleet.step() >= wanted)

    def _whole(self) -> bool:
        try:
            nodes = list_nodes(self.fleet.admin).nodes
            findings = self.fleet.admin.call(
                lambda stub: stub.ListFindings, admin_pb2.ListFindingsRequest()
            ).findings
        except AdminError:
            return False
        there = [node for node in nodes if node.connected and node.state in _FINE]
        told = any(one.condition in _CONDITIONS for one in findings)
        return len(there) == len(_NODES) and not told and self.fleet.job().state == "running"

    def events(self) -> list[admin_pb2.Event]:
        """Return all that the controller has announced."""
        found: list[admin_pb2.Event] = []

        def asked() -> bool:
            with suppress(AdminError):
                found[:] = self.fleet.admin.stream(
                    lambda stub: stub.WatchEvents, admin_pb2.WatchEventsRequest(limit=_EVENTS_MAX)
                )
                return True
            return False

        self.fleet.until("events", _PATIENCE_S, asked)
        return found

    # --- faults ----------------------------------------------------------------------------------

    def stop(self, *pids: int) -> None:
        """Stop processes until the end of the round, or until they are continued."""
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self.stopped += pids

    def go_on(self) -> None:
        """Continue what was stopped."""
        for pid in self.stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.stopped.clear()

    def agent(self, name: str) -> int:
        """Return the process of an agent."""
        return self.fleet.agents[name].process.pid

    def everything(self, name: str) -> list[int]:
        """Return all processes of a node."""
        roots = [self.fleet.agents[name], self.fleet.launchers[name]]
        return [process.pid for process in self.fleet.owned.below(*roots)]

    def end_agent(self, name: str, number: int) -> None:
        """End an agent with a signal."""
        agent = self.fleet.agents.pop(name)
        agent.process.send_signal(number)
        agent.process.wait(20)

    def kill_node(self, name: str) -> None:
        """Kill all processes of a node at once; its kernel lives."""
        roots = [self.fleet.agents.pop(name), self.fleet.launchers[name]]
        for process in self.fleet.owned.below(*roots):
            reaper.kill(process)
        for child in roots:
            child.process.wait(20)

    def heal(self) -> None:
        """Take every fault back."""
        self.go_on()
        self.cuts.heal()
        if self.fleet.controller is None:
            self.fleet.start_controller()
        for name in _NODES:
            if name not in self.fleet.agents:
                self.fleet.start_agent(name)
            if self.fleet.launchers[name].exit_code is not None:
                self.fleet.until("its agent", _PATIENCE_S, partial(_listens, self.fleet, name))
                self.fleet.launch_on(name, _SCRIPT, nodes=str(_MEMBERS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A fault, how long it lasts until it is over, and what is timed."""

    what: str
    # Breaks something, and returns the nodes that the verdict is about.
    break_it: Callable[[World], Collection[str]]
    # The reasons of the event that is timed; none: nothing may come of it.
    verdicts: tuple[str, ...] = ()
    # Whether that is of the job, not of the nodes.
    of_job: bool = False
    target_s: float | None = None
    # So long what happens is watched.
    lasts_s: float = 8.0
    rounds: int = 2
    # Whether those nodes are rightly lost, and whether the job is rightly restarted.
    loses: bool = False
    restarts: bool = False


# --- measuring -----------------------------------------------------------------------------------


def measured(world: World, case: Case) -> Row:
    """Return a row, one round after the other in the same fleet."""
    return Row(
        what=case.what,
        how="processes",
        verdict=" or ".join(case.verdicts),
        target_s=case.target_s,
        rounds=[_round(world, case) for _ in range(case.rounds)],
    )


def _round(world: World, case: Case) -> Round:
    world.settle()
    generation = world.fleet.job().generation
    began_ns = time.time_ns()
    broken = case.break_it(world)
    time.sleep(case.lasts_s)
    world.heal()
    seen = [event for event in world.events() if event.at_ns >= began_ns]
    subjects = [JOB] if case.of_job else broken
    times_ns = [e.at_ns for e in seen if e.reason in case.verdicts and e.subject in subjects]
    lost = {event.subject for event in seen if event.reason == "NodeLost"}
    restarts = world.fleet.job().generation - generation
    return Round(
        (times_ns[0] - began_ns) / 1e9 if times_ns else None,
        len(lost.difference(broken if case.loses else ())),
        max(0, restarts - case.restarts),
    )


def _listens(fleet: RealFleet, name: str) -> bool:
    """Return whether an agent listens: one that was killed leaves the name of its socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        try:
            asking.connect(str(fleet.folder / name / "run" / "agent.sock"))
        except OSError:
            return False
        return True


# --- faults --------------------------------------------------------------------------------------


def _restarted(number: int, away_s: float) -> Callable[[World], Collection[str]]:
    def restart(world: World) -> Collection[str]:
        name = world.member()
        world.end_agent(name, number)
        time.sleep(away_s)
        world.fleet.start_agent(name)
        return [name]

    return restart


def _gone(world: World) -> Collection[str]:
    name = world.member()
    world.end_agent(name, signal.SIGKILL)
    return [name]


def _hung(world: World) -> Collection[str]:
    name = world.member()
    world.stop(world.agent(name))
    return [name]


def _all_paused(world: World) -> Collection[str]:
    world.stop(*(world.agent(name) for name in _NODES))
    time.sleep(6.0)
    world.go_on()
    return _NODES


def _frozen(world: World) -> Collection[str]:
    name = world.member()
    world.cuts.deafen(name)
    world.cuts.mute(name)
    world.stop(*world.everything(name))
    time.sleep(2.5)
    world.go_on()
    world.cuts.heal()
    return [name]


def _unreachable(world: World) -> Collection[str]:
    name = world.spare()
    world.cuts.rule(name, "prohibit")
    return [name]


def _vanished(world: World) -> Collection[str]:
    name = world.spare()
    world.cuts.deafen(name)
    world.cuts.mute(name)
    return [name]


def _killed(world: World) -> Collection[str]:
    name = world.member()
    world.kill_node(name)
    return [name]


def _udp_in(world: World) -> Collection[str]:
    name = world.member()
    world.cuts.rule(name, "ipproto", "udp", "blackhole")
    return [name]


def _udp_out(world: World) -> Collection[str]:
    name = world.member()
    for other in _NODES:
        if other != name:
            source = ("from", world.cuts.hosts[name])
            world.cuts.rule(other, *source, "ipproto", "udp", "blackhole")
    return [name]


def _udp_everywhere(world: World) -> Collection[str]:
    for name in _NODES:
        world.cuts.rule(name, "ipproto", "udp", "blackhole")
    return _NODES


def _controller_cut_twice(world: World) -> Collection[str]:
    for _ in range(2):
        world.cuts.deafen_controller()
        time.sleep(20.0)
        world.cuts.heal()
        world.settle()
    return ()


def _controller_stopped(world: World) -> Collection[str]:
    assert world.fleet.controller is not None
    world.stop(world.fleet.controller.process.pid)
    time.sleep(8.0)
    world.go_on()
    return ()


def _controller_away(world: World) -> Collection[str]:
    world.fleet.end_controller(signal.SIGKILL)
    time.sleep(10.0)
    world.fleet.start_controller()
    return ()


CASES: Mapping[str, Case] = MappingProxyType(
    {
        "restart-1": Case(
            what="an agent restarts (SIGTERM), away 1 s",
            break_it=_restarted(signal.SIGTERM, 1.0),
        ),
        "restart-3": Case(
            what="an agent is killed, away 3 s", break_it=_restarted(signal.SIGKILL, 3.0)
        ),
        "restart-10": Case(
            what="an agent restarts (SIGTERM), away 10 s",
            break_it=_restarted(signal.SIGTERM, 10.0),
            rounds=1,
        ),
        "frozen": Case(what="a node is frozen for 2.5 s", break_it=_frozen),
        "gone": Case(
            what="(a) an agent is gone, its kernel refuses: people are told",
            break_it=_gone,
            verdicts=("AgentGone",),
            target_s=15.0,
            lasts_s=18.0,
            rounds=1,
        ),
        "hung": Case(
            what="(a) an agent hangs, its kernel accepts: people are told",
            break_it=_hung,
            verdicts=("AgentHung",),
            target_s=15.0,
            lasts_s=18.0,
        ),
        # After those of single agents: one that fails within a minute of an outage is told as part
        # of it.
        "paused": Case(what="all agents pause for 6 s", break_it=_all_paused),
        "unreachable": Case(
            what='(a) the network says that a node is "unreachable"',
            break_it=_unreachable,
            verdicts=("NodeDoubtful",),
            target_s=6.0,
            lasts_s=20.0,
            rounds=1,
        ),
        "vanished": Case(
            what="(b) no packet of a node comes through",
            break_it=_vanished,
            verdicts=("NodeLost",),
            target_s=6.0,
            loses=True,
        ),
        "killed": Case(
            what="all processes of a node are killed, its kernel lives: the job is replanned",
            break_it=_killed,
            verdicts=("JobStarting", "JobRestoring"),
            of_job=True,
            target_s=1.5,
            rounds=4,
            restarts=True,
        ),
        "udp-in": Case(
            what="no probe reaches a node over UDP",
            break_it=_udp_in,
            verdicts=("ProbesBlocked",),
            target_s=20.0,
            lasts_s=22.0,
            rounds=1,
        ),
        "udp-out": Case(
            what="no answer of a node comes over UDP",
            break_it=_udp_out,
            verdicts=("ProbesBlocked",),
            target_s=20.0,
            lasts_s=22.0,
            rounds=1,
        ),
        "udp-all": Case(
            what="UDP is blocked between all nodes",
            break_it=_udp_everywhere,
            verdicts=("ProbesBlocked",),
            target_s=20.0,
            lasts_s=22.0,
            rounds=1,
        ),
        "stopped": Case(
            what="the controller's loop stands still for 8 s", break_it=_controller_stopped
        ),
        "away": Case(
            what="the controller is killed, away 10 s",
            break_it=_controller_away,
            lasts_s=25.0,
            rounds=1,
        ),
        "cut": Case(
            what="the controller's network away for 20 s, twice",
            break_it=_controller_cut_twice,
            rounds=1,
        ),
    }
)


# --- running it ----------------------------------------------------------------------------------


def rows(names: Sequence[str]) -> Iterator[Row]:
    """Yield the row of each case; they run in a network namespace of their own."""
    if not names:
        return
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise SystemExit("rows of processes need root and ip (apt: iproute2); choose --rows")
    command = ["unshare", "--net", *module_command("liveness.real_faults", *names)]
    paths = [ROOT / part for part in ("agent", "common", "controller", "proto", "trainer")]
    with running(command, with_paths(*paths), may_end=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield _row(json.loads(line))
        if process.wait():
            raise SystemExit(f"the processes ended with {process.returncode}")


def _row(told: dict[str, object]) -> Row:
    rounds = told.pop("rounds")
    assert isinstance(rounds, list)
    return Row(**told, rounds=[Round(**one) for one in rounds])  # type: ignore[arg-type]


def main(names: Sequence[str], folder: Path) -> None:
    """Measure the cases, and print a line for each."""
    with network(*_NODES) as cuts:
        places, tls = certified_places(_NODES, folder, cuts.place)
        with running_fleet(*_NODES, places=places, tls=tls) as fleet:
            fleet.launch_script(_SCRIPT, nodes=str(_MEMBERS))
            world = World(fleet, cuts)
            fleet.until("the job", _PATIENCE_S, lambda: fleet.step() > _STEPS_MADE)
            for name in names:
                row = measured(world, CASES[name])
                print(json.dumps(asdict(row)), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=list(CASES))
    with tempfile.TemporaryDirectory(prefix="esl") as made:
        main(parser.parse_args().names, Path(made))
