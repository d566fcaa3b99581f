"""Fan-in benchmark: a message's cost to the controller, beside a gRPC server that drops it.

Every simulated agent has a real stream and sends one batch of samples a second, out of phase with
the others; all of them live in one generator process. Both servers run in turn, on loopback.
"""

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen

from daemons import controller_command, secret_file
from processes import cpu_s, free_port, memory_bytes, running, wait_for_port
from table import Row, arguments, row, show

from everstep_proto.local.secret import make_secret

HERE = Path(__file__).parent
# What follows the last Hello (clock requests, first decisions) is not the steady state.
SETTLE_S = 5.0


@dataclass(frozen=True, slots=True)
class Load:
    """Load of a server, one value per window."""

    cpu_percent: list[float] = field(default_factory=list)
    us_per_message: list[float] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of the measurements."""

    agents: int
    seconds: float
    repeats: int


def measure(server: Sequence[str | Path], port: int, secret: Path, plan: Plan) -> Load:
    """Run a server and a fleet against it, and read what the server used."""
    generator = HERE / "fanin_generator.py"
    fleet_command = [sys.executable, str(generator), f"127.0.0.1:{port}", str(plan.agents)]
    fleet_command.append(str(secret))
    with running(server) as process:
        wait_for_port(port, process)
        with running(fleet_command) as fleet:
            if _line(fleet) != "ready":
                raise SystemExit(f"{plan.agents} agents could not connect to {server[0]}")
            time.sleep(SETTLE_S)
            return _windows(process.pid, fleet, plan)


def _windows(pid: int, fleet: "Popen[str]", plan: Plan) -> Load:
    load = Load()
    for _ in range(plan.repeats):
        began, cpu_began, sent_began = time.monotonic(), cpu_s(pid), _sent(fleet)
        time.sleep(plan.seconds)
        used_s, sent = cpu_s(pid) - cpu_began, _sent(fleet) - sent_began
        load.us_per_message.append(used_s / sent * 1e6)
        load.cpu_percent.append(used_s / (time.monotonic() - began) * 100)
        load.memory_mib.append(memory_bytes(pid) / 2**20)
    return load


def _sent(fleet: "Popen[str]") -> int:
    assert fleet.stdin is not None
    fleet.stdin.write("\n")
    fleet.stdin.flush()
    return int(_line(fleet))


def _line(fleet: "Popen[str]") -> str:
    assert fleet.stdout is not None
    return fleet.stdout.readline().strip()


def compare(plan: Plan) -> Iterator[Row]:
    """Measure both servers with a fleet of one size."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as name:
        folder, secret = Path(name), secret_file(Path(name))
        make_secret(secret)
        drain = [sys.executable, str(HERE / "fanin_drain.py"), str(port)]
        limit = measure(drain, port, secret, plan)
        port = free_port()
        controller = measure(controller_command(folder, port), port, secret, plan)
    for name, title, unit in (
        ("us_per_message", "CPU per message", "µs"),
        ("cpu_percent", "CPU", "% of a core"),
    ):
        bare = row(f"bare gRPC, {plan.agents} agents: {title}", getattr(limit, name), unit)
        yield bare
        values = getattr(controller, name)
        yield row(f"controller, {plan.agents} agents: {title}", values, unit, bare)
    yield row(f"controller, {plan.agents} agents: memory", controller.memory_mib, "MiB")


def main() -> None:
    """Measure fleets of every size and print."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--agents", type=int, nargs="+", default=[100, 1000, 2000])
    given = parser.parse_args()
    plans = [Plan(agents, given.seconds, given.repeats) for agents in given.agents]
    show([entry for plan in plans for entry in compare(plan)], given.json)


if __name__ == "__main__":
    main()
