"""Transport benchmark: what agents' streams cost the controller, beside a bare grpc.aio server.

The same generator sends the same messages, over real connections on loopback, first to the bare
server, which parses them and answers each at once with as many messages as the controller does,
and then to the controller, a process of its own with its journal in SQLite. Both in each round.
Processor time is that of the server's process. Each agent has a connection of its own, as agents
have; rows of relays have one for 32 agents, and what a relay gathers for 0.1 s in one message.
"""

import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from daemons import controller_command
from processes import free_port, memory_bytes, process_cpu_s, running, wait_for_port
from table import Row, arguments, row, show
from vault_nodes import Talk

HERE = Path(__file__).parent
BARE, CONTROLLER = "bare gRPC", "controller"
FLEET = 12_500
STEP_S = 5.0
PER_RELAY = 32
STEADY_TARGET = 1.5
# So long nothing but questions for the time comes after everything else is done.
_QUIET_S = 1.5
_IDLE_S = 4.0
_BURSTS = {
    "progress": "progress of one step of a job on all nodes",
    "vault": "vault reports and directives of a step",
    "exits": "all ranks exit (8 a node), and start again",
}
_RECONNECT = "all agents reconnect to a server that was started again"


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of the fleet, how often each server is measured, and how long in steady state."""

    sizes: Sequence[int] = (1000, 3000)
    rounds: int = 3
    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Load:
    """Load of one server with one fleet: by row, one value for each round."""

    values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    # Messages by kind of the last steady state.
    sent: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Spent:
    cpu_s: float
    told: Mapping[str, dict[str, int]]
    seconds: float


class _Server:
    """A server under measurement, which can be started again with what it has written down."""

    def __init__(self, name: str, folder: Path, per_relay: int) -> None:
        self.port = free_port()
        self.pid = 0
        if name == BARE:
            self._command: list[str | Path]
            self._command = [sys.executable, HERE / "transport_bare.py", str(self.port)]
        elif per_relay == 1:
            self._command = controller_command(folder, self.port)
        else:
            config = controller_command(folder, free_port())[-1]
            program = HERE / "transport_relay_controller.py"
            self._command = [sys.executable, program, config, str(self.port)]

    @contextmanager
    def started(self) -> Iterator[None]:
        """Run it, and end it afterwards."""
        with running(self._command) as process:
            wait_for_port(self.port, process)
            self.pid = process.pid
            time.sleep(1.0)
            yield

    def spends(self, talk: Talk, *words: object) -> _Spent:
        """Return what it spends on a command to the fleet."""
        before = process_cpu_s(self.pid)
        told = talk.ask(*words)
        assert isinstance(told, dict)
        return _Spent(process_cpu_s(self.pid) - before, told, told["seconds"])


def measure(name: str, nodes: int, plan: Plan, load: Load, per_relay: int = 1) -> None:
    """Start a server and a fleet, and measure each row once."""
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as folder:
        server = _Server(name, Path(folder), per_relay)
        words = map(str, (server.port, nodes, per_relay))
        with running([sys.executable, HERE / "transport_fleet.py", *words]) as process:
            talk = Talk(process)
            with server.started():
                _run(server, talk, nodes, plan, load)
                talk.ask("let_go")
            if per_relay == 1:
                _reconnect(server, talk, load)


def _run(server: _Server, talk: Talk, nodes: int, plan: Plan, load: Load) -> None:
    before = memory_bytes(server.pid)
    talk.ask("connect")
    talk.ask("quiet", _QUIET_S)
    load.values["memory"].append((memory_bytes(server.pid) - before) / nodes / 1024)
    talk.ask("join")
    talk.ask("quiet", _QUIET_S)
    steady = server.spends(talk, "steady", plan.seconds, STEP_S)
    load.values["steady"].append(steady.cpu_s / plan.seconds / nodes * FLEET)
    load.values["messages"].append(sum(steady.told["sent"].values()) / plan.seconds / nodes)
    load.sent.update(steady.told["sent"])
    load.received.update(steady.told["received"])
    for burst in _BURSTS:
        talk.ask("quiet", _QUIET_S)
        idle = server.spends(talk, "idle", _IDLE_S)
        spent = server.spends(talk, burst)
        load.values[burst].append(spent.cpu_s - idle.cpu_s / idle.seconds * spent.seconds)


def _reconnect(server: _Server, talk: Talk, load: Load) -> None:
    with server.started():
        spent = server.spends(talk, "connect").cpu_s + server.spends(talk, "quiet", _QUIET_S).cpu_s
        load.values["reconnect"].append(spent)
        talk.ask("let_go")


def rows(plan: Plan) -> Iterator[Row]:
    """Measure and yield all rows."""
    for nodes in plan.sizes:
        bare, controller = Load(), Load()
        for _ in range(plan.rounds):
            measure(BARE, nodes, plan, bare)
            measure(CONTROLLER, nodes, plan, controller)
        yield from _compared(bare, controller, nodes)
    nodes = plan.sizes[-1]
    relayed_bare, relayed = Load(), Load()
    for _ in range(plan.rounds):
        measure(BARE, nodes, plan, relayed_bare, PER_RELAY)
        measure(CONTROLLER, nodes, plan, relayed, PER_RELAY)
    yield from _relays(relayed_bare, relayed, controller, nodes)


def _compared(bare: Load, controller: Load, nodes: int) -> Iterator[Row]:
    for key, what in {**_BURSTS, "reconnect": _RECONNECT}.items():
        yield from _pair(bare, controller, key, f"{nodes} agents: {what}", "s")
    yield from _pair(bare, controller, "memory", f"{nodes} agents: memory of a stream", "KiB")
    what = f"{nodes} agents, steps of {STEP_S:g} s, for {FLEET}"
    yield from _pair(bare, controller, "steady", what, "cores")
    ratios = [
        ours / theirs
        for ours, theirs in zip(controller.values["steady"], bare.values["steady"], strict=True)
    ]
    yield row(f"{nodes} agents, steady state: controller / bare", ratios, "", target=STEADY_TARGET)
    print(f"{nodes} agents: sent {controller.sent}, bare {bare.sent}", file=sys.stderr)
    print(f"  received {controller.received}, bare {bare.received}", file=sys.stderr)


def _pair(bare: Load, controller: Load, key: str, what: str, unit: str) -> Iterator[Row]:
    limit = row(f"{BARE}, {what}", bare.values[key], unit)
    yield limit
    yield row(f"{CONTROLLER}, {what}", controller.values[key], unit, limit)


def _relays(bare: Load, relayed: Load, direct: Load, nodes: int) -> Iterator[Row]:
    """Yield what the same agents cost through relays, against themselves without."""
    what = f"{nodes} agents by relays of {PER_RELAY}, for {FLEET}"
    yield row(f"{BARE}, {what}", bare.values["steady"], "cores")
    without = row("without relays", direct.values["steady"], "cores")
    yield row(f"{CONTROLLER}, {what}", relayed.values["steady"], "cores", without)
    what = f"{nodes} agents by relays of {PER_RELAY}: memory of an agent"
    yield from _pair(bare, relayed, "memory", what, "KiB")


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__ or "")
    usual = Plan()
    parser.set_defaults(repeats=usual.rounds, seconds=usual.seconds)
    parser.add_argument("--agents", type=int, nargs="+", default=[*usual.sizes])
    given = parser.parse_args()
    plan = Plan(given.agents, given.repeats, given.seconds)
    show([*rows(plan)], given.json)


if __name__ == "__main__":
    main()
