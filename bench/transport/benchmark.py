"""Transport benchmark: what agents' streams cost the controller, in processor time and memory.

A generator has so many agents in one process, each with a connection of its own on loopback; what
they say is what real agents with 8 ranks say while a job trains with a step every 5 s. The
controller is a process of its own with its journal in SQLite, and the processor time is its own.
The steady state is told in cores for a fleet of 12,500. ``doors``: the same with two processes that
accept the streams (``stream_processes``), and what the busiest loop of all takes.
"""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil
from harness.daemons import controller_command, secret_file
from harness.processes import (
    free_port,
    main_thread_cpu_s,
    memory_bytes,
    module_command,
    process_cpu_s,
    running,
    wait_for_port,
)
from harness.session import Benchmark, Part
from harness.table import Row, row
from harness.talk import Talk
from harness.waits import until_quiet

from everstep_proto.local.secret import make_secret

FLEET, STEP_S = 12_500, 5.0
_DOOR = "everstep_controller.doors.door"
# Of a core, for each loop of such a fleet.
_TARGET = 0.7
# So long nothing but questions for the time comes after everything else is done.
_QUIET_S, _IDLE_S, _START_S = 1.5, 4.0, 120.0
_BURSTS = {
    "progress": "progress of one step of a job on all nodes",
    "vault": "vault reports and directives of a step",
    "exits": "all ranks exit (8 a node), and start again",
}


class _Controller:
    """A controller that is started, and what its agents' commands cost it."""

    def __init__(
        self, stack: ExitStack, folder: Path, port: int, talk: Talk, doors: int = 0
    ) -> None:
        command = controller_command(folder, port, f"stream_processes = {doors}\n")
        process = stack.enter_context(running(command))
        wait_for_port(port, process, _START_S)
        until_quiet(process.pid, _START_S)
        self.pid, self._talk = process.pid, talk

    def spent_s(self, *words: object) -> float:
        """Return its seconds of processor time until the fleet has done something."""
        before = process_cpu_s(self.pid)
        self._talk.ask(*words)
        return process_cpu_s(self.pid) - before

    def loops_s(self) -> list[float]:
        """Return the seconds that each event loop has taken: its own, and that of each door."""
        children = psutil.Process(self.pid).children()
        doors = [one for one in children if _DOOR in one.cmdline()]
        return [main_thread_cpu_s(one) for one in (self.pid, *(door.pid for door in doors))]

    def steady_cores(self, nodes: int, seconds: float) -> list[float]:
        """Return what each loop takes in the steady state, in cores for the whole fleet."""
        before = self.loops_s()
        self._talk.ask("steady", seconds, STEP_S)
        spent = [now - then for now, then in zip(self.loops_s(), before, strict=True)]
        return [one / (seconds * nodes / FLEET) for one in spent]

    def settled_s(self, *words: object) -> float:
        """Return the same, with all that follows."""
        return self.spent_s(*words) + self.spent_s("quiet", _QUIET_S)

    def burst_s(self, name: str) -> float:
        """Return what a burst costs, without what is done beside it."""
        self.spent_s("quiet", _QUIET_S)
        idle = self.spent_s("idle", _IDLE_S) / _IDLE_S
        before = process_cpu_s(self.pid)
        told = self._talk.ask(name)
        assert isinstance(told, dict)
        return process_cpu_s(self.pid) - before - idle * float(told["seconds"])


def measure(nodes: int, options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of a fleet of one size."""
    what = f"{nodes} agents: "
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="everstep-bench-")))
        port = free_port()
        make_secret(secret_file(folder))
        command = module_command("transport.fleet", port, nodes, secret_file(folder))
        talk = Talk(stack.enter_context(running(command)))
        with ExitStack() as first:
            controller = _Controller(first, folder, port, talk)
            before = memory_bytes(controller.pid)
            controller.settled_s("connect")
            taken = memory_bytes(controller.pid) - before
            yield row(f"{what}memory of a stream", [taken / nodes / 1024], "KiB")
            controller.settled_s("join")
            yield row(
                f"{what}steps of {STEP_S:g} s, for {FLEET}",
                [
                    controller.spent_s("steady", options.seconds, STEP_S)
                    / (options.seconds * nodes / FLEET)
                    for _ in range(options.repeats)
                ],
                "cores",
            )
            for name, words in _BURSTS.items():
                spent = [controller.burst_s(name) for _ in range(options.repeats)]
                yield row(f"{what}{words}", spent, "s")
            talk.ask("let_go")
        with ExitStack() as second:
            controller = _Controller(second, folder, port, talk)
            again = controller.settled_s("connect")
            yield row(f"{what}all reconnect to a controller that was started again", [again], "s")
            talk.ask("let_go")


def measure_doors(options: argparse.Namespace) -> Iterator[Row]:
    """Yield what each loop takes, without processes that accept streams and with two."""
    nodes = 1000
    for doors in (0, 2):
        with ExitStack() as stack:
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="everstep-bench-"))
            )
            port = free_port()
            make_secret(secret_file(folder))
            command = module_command("transport.fleet", port, nodes, secret_file(folder))
            talk = Talk(stack.enter_context(running(command)))
            controller = _Controller(stack, folder, port, talk, doors)
            controller.settled_s("connect")
            controller.settled_s("join")
            rounds = [
                controller.steady_cores(nodes, options.seconds) for _ in range(options.repeats)
            ]
            what = f"{nodes} agents, {doors} processes that accept"
            own = [one[0] for one in rounds]
            yield row(f"{what}: the controller's loop", own, "cores", target=_TARGET)
            if doors:
                busiest = [max(one[1:]) for one in rounds]
                yield row(f"{what}: the busiest of those", busiest, "cores", target=_TARGET)
            talk.ask("let_go")


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[
        *(
            Part(str(nodes), seconds, partial(measure, nodes))
            for nodes, seconds in ((64, 150.0), (1000, 300.0), (3000, 600.0))
        ),
        Part("doors", 180.0, measure_doors),
    ],
    repeats=3,
    seconds=20.0,
    quick={"repeats": 1, "seconds": 5.0},
)
