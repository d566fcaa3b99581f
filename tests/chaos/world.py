"""World of controllers with one journal: each on what is to the others another machine.

A controller has a network, a count of processes and a host name of its own, so that none sees that
the process of another one has ended. Used by programs in namespaces of their own (`inside`).
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg

from chaos.evidence import ControllerEnd
from chaos.fleet import FleetSettings
from everstep_cli.client.admin import Admin, AdminError
from everstep_cli.client.connection import Connection
from everstep_cli.client.grpc_admin import connect
from everstep_proto.generated import admin_pb2
from everstep_proto.tls import TlsSettings
from fakes.authority import Authority
from fakes.postgres_server import PostgresServer, postgres_server
from fakes.waits import wait_until
from real.cut_network import Network, network

PORT = 7443
# One fault comes after the other here, which a fleet would take for a mistake of its controller.
_WITHOUT_LIMITS = "".join(
    f"{key} = 1000\n"
    for key in (
        "isolation_budget_nodes", "isolations_per_hour_nodes", "domain_isolation_budget_nodes",
        "domain_isolations_per_hour_nodes", "job_stops_per_hour",
    )
)  # fmt: skip
PATIENCE_S = 120.0
# A wait that is longer is told of.
_SLOW_S = 10.0
_OUTSIDE = "10.77.0.1"
_NAMED = 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"'
# Of the bench and the tests, whatever is imported there.
_PATHS = os.pathsep.join(path for path in sys.path if path)


@dataclass(slots=True)
class ControllerMachine:
    """A machine with a controller: it can be killed, stand still, be cut off, and come back."""

    name: str
    address: str
    folder: Path
    enter: tuple[str, ...]
    environ: Mapping[str, str]
    life: int = 0
    # By this program: with a signal, or by an order to hand over.
    was_killed: bool = False
    was_asked: bool = False
    ended: list[ControllerEnd] = field(default_factory=list)
    _process: "subprocess.Popen[bytes] | None" = None
    _known_pid: int = 0

    @property
    def log(self) -> Path:
        """Return the log of the newest process."""
        return self.folder / f"log-{self.life}"

    @property
    def runs(self) -> bool:
        """Return whether it has a process; note its end where it has none any more."""
        if self._process is None:
            return False
        status = self._process.poll()
        if status is None:
            return True
        log = self.log.read_text(errors="replace")
        self.ended.append(
            ControllerEnd(self.name, self.life, status, self.was_killed, log, self.was_asked)
        )
        self._process = None
        return False

    def start(self) -> None:
        """Start its controller."""
        assert not self.runs
        self.life += 1
        self.was_killed = self.was_asked = False
        self._known_pid = 0
        command = [
            *self.enter,
            *["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts"],
            *("sh", "-c", _NAMED, self.name, sys.executable, "-m", "everstep_controller.main"),
            *("--config", str(self.folder / "controller.toml")),
        ]
        environ = {**os.environ, "PYTHONPATH": _PATHS, **self.environ}
        with self.log.open("ab") as sink:
            self._process = subprocess.Popen(command, env=environ, stdout=sink, stderr=sink)

    @property
    def pid(self) -> int:
        """Return the process of the controller itself, which is the first of its namespace."""
        assert self._process is not None
        if not self._known_pid:
            outer = psutil.Process(self._process.pid)
            self._known_pid = wait_until(lambda: [c.pid for c in outer.children()], PATIENCE_S)[0]
        return self._known_pid

    def signal(self, number: int) -> None:
        """Send the controller a signal."""
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.was_killed = True
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            os.kill(self.pid, number)

    def stand_still(self) -> None:
        """Stop all its processes."""
        for one in self._all():
            with suppress(psutil.NoSuchProcess):
                one.suspend()

    def go_on(self) -> None:
        """Continue them."""
        for one in self._all():
            with suppress(psutil.NoSuchProcess):
                one.resume()

    def _all(self) -> list[psutil.Process]:
        try:
            main = psutil.Process(self.pid)
            return [main, *main.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """End it as a power cut would, but for the database's connections, and see it go."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self) -> None:
        """Wait until its process has ended."""
        wait_until(lambda: not self.runs, PATIENCE_S, f"end of {self.name}")

    def logged(self) -> str:
        """Return all that its processes have logged."""
        logs = sorted(self.folder.glob("log-*"), key=lambda path: int(path.name[4:]))
        return "".join(path.read_text(errors="replace") for path in logs)


class World:
    """Database, controllers, their network, and the certificates of all."""

    def __init__(self, folder: Path, server: PostgresServer, cuts: Network) -> None:
        self.folder, self.server, self.cuts = folder, server, cuts
        (folder / "certificates").mkdir()
        self.authority = Authority(folder / "certificates")
        ours = self.authority.issue("controller", "operator")
        self.tls = TlsSettings(
            ca=ours.ca, certificate=ours.certificate, key=ours.key, server_name="localhost"
        )
        self.database = server.new_database()
        self.machines: list[ControllerMachine] = []
        self.cut_off: set[str] = set()

    @property
    def url(self) -> str:
        """Return the journal's address."""
        where = f"postgresql://postgres@{_OUTSIDE}:{self.server.port}/{self.database}"
        return f"{where}?sslmode=disable"

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return where the controllers are."""
        return tuple(one.address for one in self.machines)

    def add_controller(self, name: str, environ: Mapping[str, str]) -> None:
        """Add a machine with a controller, which is not started."""
        folder = self.folder / name
        folder.mkdir()
        address = f"{self.cuts.hosts[name]}:{PORT}"
        lines = "".join(
            f'{key} = "{path}"\n'
            for key, path in {
                "ca": self.tls.ca, "certificate": self.tls.certificate, "key": self.tls.key,
            }.items()
        )  # fmt: skip
        (folder / "controller.toml").write_text(
            f'listen = "{address}"\naddress = "{address}"\nmetrics = ""\nrole = "standby"\n'
            f'journal = "{self.url}"\nstate_folder = "{folder}"\nlog_style = "text"\n'
            f'[core]\nmode = "enforce"\n{_WITHOUT_LIMITS}'
            f'[tls]\n{lines}server_name = "localhost"\n'
        )
        enter = self.cuts.enter(name)
        self.machines.append(ControllerMachine(name, address, folder, enter, environ))

    def fleet_settings(self, nodes: Mapping[str, str], **more: object) -> FleetSettings:
        """Return those of a fleet, for whose nodes certificates are made."""
        for name in nodes:
            self.authority.issue(name, "agent")
        return FleetSettings(
            nodes=nodes,
            controllers=self.addresses,
            folder=str(self.folder / "nodes"),
            certificates=str(self.folder / "certificates"),
            **more,  # type: ignore[arg-type]
        )

    # --- who is active ---------------------------------------------------------------------------

    @contextmanager
    def admin(self, machine: ControllerMachine, timeout_s: float = 5.0) -> Iterator[Admin]:
        """Connect to a controller."""
        wanted = Connection(address=machine.address, tls=self.tls, timeout_s=timeout_s)
        with connect(wanted) as admin:
            yield admin

    def is_active(self, machine: ControllerMachine) -> bool:
        """Return whether a controller says that it is the active one."""
        if not machine.runs:
            return False
        with suppress(AdminError), self.admin(machine, 2.0) as admin:
            told = admin.call(lambda s: s.ListControllers, admin_pb2.ListControllersRequest())
            return any(one.active and one.answers for one in told.controllers)
        return False

    def lease(self) -> tuple[int, str]:
        """Return the term of the lease and who holds it, as the database has it."""
        ((term, told),) = self.server.execute(
            "select term, told from everstep.lease", database=self.database
        )
        return int(term), str(told)

    def active(self) -> ControllerMachine | None:
        """Return the controller that holds the lease, by the database; None for nobody."""
        with suppress(psycopg.Error):
            _, told = self.lease()
            return next((one for one in self.machines if f'"{one.address}"' in told), None)
        return None

    def standbys(self) -> Sequence[str]:
        """Return what is told of those that look on."""
        with suppress(psycopg.Error):
            found = self.server.execute(
                "select told from everstep.observer where seen_at > now() - interval '2 s'",
                database=self.database,
            )
            return [str(told) for (told,) in found]
        return []

    def until(self, so: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
        """Wait for something. Raises AssertionError with the ends of all logs."""
        began_s, told = time.monotonic(), False

        def asked() -> object:
            nonlocal told
            if not told and time.monotonic() - began_s > _SLOW_S:
                told = True
                print(f"still waiting for {what}", file=sys.stderr, flush=True)
            return so()

        try:
            wait_until(asked, patience_s, what)
        except AssertionError as error:
            logs = [f"== {one.name}\n{one.logged()[-3000:]}" for one in self.machines]
            raise AssertionError("\n".join([str(error), *logs])) from None

    def is_whole(self) -> bool:
        """Return whether one is active and all others follow it closely."""
        active = self.active()
        followers = {
            one.address
            for one in self.machines
            for told in self.standbys()
            if one is not active and f'"{one.address}"' in told and '"behind_s": 0.0' in told
        }
        whole = active is not None and len(followers) == len(self.machines) - 1
        return whole and active is not None and self.is_active(active)

    def until_pair(self) -> ControllerMachine:
        """Wait until it is whole; return the active one."""
        self.until(self.is_whole, "an active controller with standbys")
        active = self.active()
        assert active is not None
        return active

    # --- faults ----------------------------------------------------------------------------------

    def cut(self, name: str) -> None:
        """Let no packet pass between a machine and all others."""
        self.cut_off.add(name)
        self._cut_all()

    def heal(self, name: str = "") -> None:
        """Let the packets of one pass again, or of all."""
        self.cut_off = self.cut_off - {name} if name else set()
        self._cut_all()

    def _cut_all(self) -> None:
        self.cuts.heal()
        self.cuts.isolate(self.cut_off)

    def close(self) -> None:
        """End all controllers."""
        for one in self.machines:
            if one.runs:
                one.signal(signal.SIGKILL)
        for one in self.machines:
            with suppress(AssertionError):
                one.wait()


@contextmanager
def world(
    folder: Path,
    controllers: Mapping[str, Mapping[str, str]],
    others: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Iterator[World]:
    """Yield a world whose controllers are not started; this process's network is the database's.

    ``controllers``: more variables of each; ``options``: of the database's server.
    """
    with (
        network(*controllers, *others) as cuts,
        postgres_server("listen_addresses=*", *options) as server,
    ):
        with (server.folder / "data/pg_hba.conf").open("a") as rules:
            rules.write("host all all 10.77.0.0/24 trust\n")
        server.execute("select pg_reload_conf()")
        made = World(folder, server, cuts)
        for name, environ in controllers.items():
            made.add_controller(name, environ)
        try:
            yield made
        finally:
            made.close()


def now_s() -> float:
    """Return the time by which all faults and answers are measured."""
    return time.monotonic()
