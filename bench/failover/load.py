"""Load of several controllers: what the active one and a standby cost beside one with a file.

The generator of the transport benchmark has 2,000 agents in one process, each with a connection of
its own on loopback, whose job trains with a step every 5 s.
"""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from harness.daemons import controller_command, secret_file
from harness.processes import (
    free_port,
    memory_bytes,
    module_command,
    process_cpu_s,
    running,
    wait_for_port,
)
from harness.table import Row, Series, Target
from harness.talk import Talk
from harness.waits import until_quiet

from everstep_proto.local.secret import make_secret
from fakes.postgres_server import postgres_server

AGENTS, STEP_S = 2000, 5.0
# A journal in a database may cost the controller so much more than one in a file.
_RATIO = 1.5
_QUIET_S, _START_S = 1.5, 120.0
_DURABLE = ("fsync=on", "full_page_writes=on")


@dataclass(slots=True)
class _Place:
    """Folder and port of a controller, and what it cost in each window, in cores."""

    name: str
    folder: Path
    port: int
    # A database; "" for a file.
    url: str = ""
    cores: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)

    def command(self, secret: Path) -> list[str | Path]:
        """Return its controller's command."""
        self.folder.mkdir(exist_ok=True)
        command = controller_command(self.folder, self.port)
        config = self.folder / "controller.toml"
        text = config.read_text().replace(str(secret_file(self.folder)), str(secret))
        if self.url:
            file = f'journal = "{self.folder}/journal.sqlite"\n'
            text = text.replace(
                file,
                f'journal = "{self.url}"\nstate_folder = "{self.folder}"\nrole = "standby"\n'
                f'address = "127.0.0.1:{self.port}"\n',
            )
        config.write_text(text)
        return command


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of each, turn by turn."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="everstep-bench-")))
        server = stack.enter_context(postgres_server(*_DURABLE))
        secret = folder / "secret"
        make_secret(secret)
        rounds = max(1, min(options.repeats, 3))
        alone, active, standby = (
            _Place(name, folder, free_port()) for name in ("file", "active", "standby")
        )
        for number in range(rounds):
            for places in ([alone], [active, standby]):
                if places[0] is active:
                    active.url = standby.url = server.url(server.new_database())
                # Another journal is another cluster's, and its file is beside the configuration.
                for place in places:
                    place.folder = folder / f"{place.name}-{number}"
                _window(places, secret, options.seconds)
        file = Series(f"{AGENTS} agents, journal in a file: controller", alone.cores, "cores")
        yield file.figure()
        database = f"{AGENTS} agents, journal in PostgreSQL:"
        yield Series(f"{database} active controller", active.cores, "cores").against(
            file, Target(_RATIO)
        )
        yield Series(f"{database} standby", standby.cores, "cores").against(file)
        yield Series(f"{database} memory of the active one", active.memory, "MiB").figure()
        yield Series(f"{database} memory of the standby", standby.memory, "MiB").figure()


def _window(places: list[_Place], secret: Path, seconds: float) -> None:
    """Have the agents train for a while, and keep what each controller cost meanwhile."""
    with ExitStack() as stack:
        processes = []
        for place in places:
            process = stack.enter_context(running(place.command(secret)))
            wait_for_port(place.port, process, _START_S)
            processes.append(process)
        until_quiet(processes[0].pid, _START_S)
        command = module_command("transport.fleet", places[0].port, AGENTS, secret)
        talk = Talk(stack.enter_context(running(command)))
        for words in (("connect",), ("quiet", _QUIET_S), ("join",), ("quiet", _QUIET_S)):
            talk.ask(*words)
        before = [process_cpu_s(process.pid) for process in processes]
        talk.ask("steady", seconds, STEP_S)
        for place, process, spent in zip(places, processes, before, strict=True):
            # The window's tail belongs to its last step.
            place.cores.append((process_cpu_s(process.pid) - spent) / seconds)
            place.memory.append(memory_bytes(process.pid) / 2**20)
        talk.ask("let_go")
