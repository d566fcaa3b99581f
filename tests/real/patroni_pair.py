"""Two servers of PostgreSQL under Patroni with etcd, on loopback: those of a page."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from fakes.ports import reserved_port
from fakes.postgres_server import binaries
from fakes.waits import wait_until
from real.page_blocks import blocks, replaced

PAGE, HEADING = "docs/postgresql-ha.md", "Two servers under Patroni"
NAMES = ("db-1", "db-2")
_PROGRAMS = ("patroni", "patronictl", "etcd")


def lacking() -> str:
    """Return why no pair can run here; empty where one can."""
    missing = [one for one in _PROGRAMS if shutil.which(one) is None]
    if missing or binaries() is None or os.geteuid() != 0:
        return "needs root and patroni, etcd, PostgreSQL (apt: patroni python3-etcd etcd-server)"
    return ""


@dataclass(frozen=True)
class Member:
    """A member of the pair: its port, and where it lies."""

    name: str
    port: int
    rest_port: int
    folder: Path
    # What the page calls this machine's things.
    places: dict[str, str]

    @property
    def config(self) -> Path:
        """Return its configuration."""
        return self.folder / "config.yml"

    def processes(self) -> list[psutil.Process]:
        """Return the server and all that it has started."""
        with suppress(OSError, ValueError, psutil.NoSuchProcess):
            pid = int((self.folder / "data/postmaster.pid").read_text().split("\n")[0])
            main = psutil.Process(pid)
            if main.name() == "postgres":
                return [main, *main.children(recursive=True)]
        return []


@dataclass
class PatroniPair:
    """The pair; ``patroni_pair`` makes it and leaves nothing of it."""

    folder: Path
    members: dict[str, Member]
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start Patroni on a member, which starts the server."""
        member = self.members[name]
        with (member.folder / "log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [*_as_postgres(), "patroni", str(member.config)],
                stdout=log, stderr=log, cwd=member.folder, start_new_session=True,
            )  # fmt: skip

    def kill(self, name: str) -> None:
        """End a machine as a power cut would: Patroni, and the server."""
        member = self.members[name]
        processes = member.processes()
        if (patroni := self.running.pop(name, None)) is not None:
            patroni.kill()
            patroni.wait()
        for one in processes:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(processes, timeout=20)

    def typed(self, block: str, name: str, answers: str = "") -> str:
        """Type a block of the page on a member; return what is printed."""
        member = self.members[name]
        # A pair on one machine has two ports.
        environment = os.environ | {"PGPORT": str(member.port)}
        told = subprocess.run(
            ["sh", "-e", "-c", replaced(block, member.places)],
            input=answers, text=True, capture_output=True, timeout=120, env=environment,
            check=False, cwd="/", start_new_session=True,
        )  # fmt: skip
        assert told.returncode == 0, (block, told.stdout, told.stderr)
        return told.stdout

    def roles(self) -> dict[str, str]:
        """Return the role of each member that runs, as patronictl lists it."""
        (listing,) = [one for one in blocks(PAGE, HEADING, "sh") if "list" in one]
        printed = self.typed(f"{listing.strip()} --format json", NAMES[0])
        works = ("running", "streaming")
        return {one["Member"]: one["Role"] for one in json.loads(printed) if one["State"] in works}

    def leader(self) -> str:
        """Return the member that leads; empty for none."""
        return next((name for name, role in self.roles().items() if role == "Leader"), "")

    def wait_for_both(self) -> str:
        """Wait until one leads and the other one is its synchronous standby; return the first."""
        wait_until(lambda: sorted(self.roles().values()) == ["Leader", "Sync Standby"])
        return self.leader()

    def logs(self) -> str:
        """Return the end of what both logged."""
        return "\n".join(
            (one.folder / "log").read_text(errors="replace")[-3000:]
            for one in self.members.values()
        )


def _as_postgres() -> list[str]:
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]


@contextmanager
def patroni_pair() -> Iterator[PatroniPair]:
    """Run both members and their etcd."""
    folder = Path(tempfile.mkdtemp(prefix="everstep-patroni-"))
    with ExitStack() as ends:
        ends.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        ports = [ends.enter_context(reserved_port()) for _ in range(6)]
        _start_etcd(folder, ports[4], ports[5], ends)
        pair = PatroniPair(folder, {})
        for place, name in enumerate(NAMES):
            pair.members[name] = _member(folder, name, ports[2 * place : 2 * place + 2], ports[4])
            ends.callback(pair.kill, name)
        for name in NAMES:
            pair.start(name)
        try:
            pair.wait_for_both()
            yield pair
        except BaseException:
            print(pair.logs())
            raise


def _start_etcd(folder: Path, port: int, peer_port: int, ends: ExitStack) -> None:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    with (folder / "etcd.log").open("wb") as log:
        etcd = subprocess.Popen(
            [
                *("etcd", "--name=e1", f"--data-dir={folder / 'etcd'}"),
                *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
                *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
                f"--initial-cluster=e1={peer}",
            ],
            stdout=log,
            stderr=log,
        )
    ends.callback(etcd.wait)
    ends.callback(etcd.kill)


def _member(folder: Path, name: str, ports: list[int], etcd_port: int) -> Member:
    """Write a member's configuration: the page's, with the ports and folders of this test."""
    mine = folder / name
    mine.mkdir()
    shutil.chown(mine, "postgres", "postgres")
    port, rest_port = ports
    places = {
        "db-1.example:8008": f"127.0.0.1:{rest_port}",
        "db-1.example:5432": f"127.0.0.1:{port}",
        "etcd-1.example:2379": f"127.0.0.1:{etcd_port}",
        "/var/lib/postgresql/everstep.pgpass": str(mine / "pgpass"),
        "/var/lib/postgresql/everstep": str(mine / "data"),
        "/usr/lib/postgresql/15/bin": str(binaries()),
        "/var/run/postgresql": str(mine),
        "/etc/patroni/config.yml": str(mine / "config.yml"),
    }
    member = Member(name, port, rest_port, mine, places)
    (page,) = blocks(PAGE, HEADING, "yaml")
    member.config.write_text(replaced(page, places).replace("name: db-1", f"name: {name}"))
    return member
