"""Transport benchmark: what agents' streams cost the controller, beside a bare grpc.aio server.

The same generator sends the same messages, over real connections on loopback, first to the bare
server, which parses them and answers each at once with as many messages as the controller does,
then to the controller, a process of its own with its journal in SQLite; in turn, in each round.
Processor time is that of the server's process. Each agent has a connection of its own, as agents
have; rows of relays have one for 32 agents, and what a relay gathers for 0.1 s in one message.
"""

import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from daemons import controller_command, secret_file
from processes import free_port, memory_bytes, process_cpu_s, running, wait_for_port
from table import Row, arguments, row, show
from vault_nodes import Talk, until_quiet

from everstep_proto.local.secret import make_secret

HERE = Path(__file__).parent
BARE, CONTROLLER = "bare gRPC", "controller"
FLEET = 12_500
STEP_S = 5.0
PER_RELAY = 32
STEADY_TARGET = 1.5
# So long nothing but questions for the time comes after everything else is done.
_QUIET_S = 1.5
_IDLE_S = 4.0
# A controller that was ended in the middle of its work reads its journal before it listens.
_START_S = 120.0
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


class _Side:
    """A server under measurement with a fleet of its own, and what was found."""

    def __init__(self, name: str, folder: Path, nodes: int, per_relay: int) -> None:
        self.load = Load()
        self._nodes = nodes
        self._port = free_port()
        self._pid = 0
        make_secret(secret_file(folder))
        words = [str(word) for word in (self._port, nodes, per_relay, secret_file(folder))]
        self._fleet: list[str | Path] = [sys.executable, HERE / "transport_fleet.py", *words]
        self._command: list[str | Path]
        if name == BARE:
            self._command = [sys.executable, HERE / "transport_bare.py", str(self._port)]
        elif per_relay == 1:
            self._command = controller_command(folder, self._port)
        else:
            config = controller_command(folder, free_port())[-1]
            program = HERE / "transport_relay_controller.py"
            self._command = [sys.executable, program, config, str(self._port)]

    @contextmanager
    def training(self) -> Iterator["_Side"]:
        """Have the fleet connected, and its job running; at the end, have it connect anew."""
        with running(self._fleet) as process:
            self._talk = Talk(process)
            with self._started():
                before = memory_bytes(self._pid)
                self._spend("connect")
                self._spend("quiet", _QUIET_S)
                taken = memory_bytes(self._pid) - before
                self.load.values["memory"].append(taken / self._nodes / 1024)
                self._spend("join")
                self._spend("quiet", _QUIET_S)
                yield self
                self._spend("let_go")
            with self._started():
                spent = [self._spend("connect"), self._spend("quiet", _QUIET_S)]
                self.load.values["reconnect"].append(sum(one.cpu_s for one in spent))
                self._spend("let_go")

    def steady(self, seconds: float) -> None:
        """Measure the steady state."""
        steady, values = self._spend("steady", seconds, STEP_S), self.load.values
        values["steady"].append(steady.cpu_s / seconds / self._nodes * FLEET)
        self.load.sent.update(steady.told["sent"])
        self.load.received.update(steady.told["received"])

    def burst(self, name: str) -> None:
        """Measure one, without what the server does beside it."""
        self._spend("quiet", _QUIET_S)
        idle, spent = self._spend("idle", _IDLE_S), self._spend(name)
        beside_s = idle.cpu_s / idle.seconds * spent.seconds
        self.load.values[name].append(spent.cpu_s - beside_s)

    @contextmanager
    def _started(self) -> Iterator[None]:
        with running(self._command) as process:
            wait_for_port(self._port, process, _START_S)
            self._pid = process.pid
            until_quiet(self._pid, _START_S)
            yield

    def _spend(self, *words: object) -> _Spent:
        """Return what the server spends on a command to the fleet."""
        before = process_cpu_s(self._pid)
        told = self._talk.ask(*words)
        assert isinstance(told, dict)
        return _Spent(process_cpu_s(self._pid) - before, told, told["seconds"])


def measure(nodes: int, plan: Plan, per_relay: int = 1) -> tuple[Load, Load]:
    """Measure both servers in turn, in each round, while both have their fleets; bare first."""
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as folder, ExitStack() as sides:
        bare, controller = both = [
            sides.enter_context(_Side(name, Path(folder), nodes, per_relay).training())
            for name in (BARE, CONTROLLER)
        ]
        for _ in range(plan.rounds):
            for side in both:
                side.steady(plan.seconds)
        for burst in _BURSTS:
            for _ in range(plan.rounds):
                for side in both:
                    side.burst(burst)
    return bare.load, controller.load


def rows(plan: Plan) -> Iterator[Row]:
    """Measure and yield all rows."""
    found = {nodes: measure(nodes, plan) for nodes in plan.sizes}
    for nodes, (bare, controller) in found.items():
        yield from _compared(bare, controller, nodes)
    nodes = plan.sizes[-1]
    yield from _relays(*measure(nodes, plan, PER_RELAY), found[nodes][1], nodes)


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
