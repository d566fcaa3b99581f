"""A real PostgreSQL server for tests, on a free port of loopback, as a user that is not root."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil
import psycopg
import pytest

from fakes.ports import reserved_port
from fakes.waits import wait_until

# A crash of the server loses nothing that the kernel has, so no test needs its disk's answer.
_FAST = ("fsync=off", "full_page_writes=off", "unix_socket_directories=", "max_wal_size=2GB")
_USER = "postgres"


def binaries() -> Path | None:
    """Return the folder of the newest server that is installed; None for none."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: int(p.parts[4])
    )
    if found:
        return found[-1].parent
    here = shutil.which("postgres")
    return Path(here).resolve().parent if here else None


def _as_user(*command: str) -> list[str]:
    """Return a command as it is run: PostgreSQL refuses to be root."""
    become = ("setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups", "--")
    return [*become, *command] if os.geteuid() == 0 else [*command]


@dataclass
class PostgresServer:
    """A server that can be killed, paused and started again, with its folder."""

    folder: Path
    port: int
    options: list[str] = field(default_factory=list)
    _process: "subprocess.Popen[bytes] | None" = None
    _made: int = 0

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        chosen = [*_FAST, f"port={self.port}", "listen_addresses=127.0.0.1", *self.options]
        program = str(_installed() / "postgres")
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                _as_user(program, "-D", str(self.folder / "data"), *(f"--{one}" for one in chosen)),
                stdout=log,
                stderr=log,
                cwd="/",
            )
        wait_until(self._answers, 60)
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        with suppress(psycopg.OperationalError):
            self.execute("select 1")
            return True
        return False

    def url(self, database: str) -> str:
        """Return the address of a database."""
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{database}"

    def new_database(self, template: str = "template1") -> str:
        """Return the name of a new database."""
        self._made += 1
        name = f"journal_{self._made}"
        self.execute(f"create database {name} template {template}")
        return name

    def execute(
        self, statement: str, values: Sequence[object] = (), database: str = "postgres"
    ) -> list[tuple[Any, ...]]:
        """Run a statement as the superuser; return its rows."""
        with psycopg.connect(self.url(database), autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def standby(self, name: str) -> Iterator["PostgresServer"]:
        """Run a standby of that name beside it, which follows it."""
        folder = Path(tempfile.mkdtemp(prefix="everstep-standby-"))
        try:
            if os.geteuid() == 0:
                shutil.chown(folder, _USER, _USER)
            primary = f"host=127.0.0.1 port={self.port} user={_USER} application_name={name}"
            subprocess.run(
                _as_user(
                    str(_installed() / "pg_basebackup"), "--write-recovery-conf", "--no-sync",
                    "--checkpoint=fast", f"--pgdata={folder / 'data'}", f"--dbname={primary}",
                ),
                check=True, cwd="/",
            )  # fmt: skip
            with reserved_port() as port:
                server = PostgresServer(folder, port, list(self.options)).start()
                try:
                    yield server
                finally:
                    server.kill()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def fall_behind(self) -> None:
        """Have a standby receive nothing more."""
        self.setting("primary_conninfo", "")
        wait_until(lambda: not self.execute("select 1 from pg_stat_wal_receiver"), 20)

    def promote(self) -> None:
        """Have a standby take writes."""
        assert self.execute("select pg_promote()") == [(True,)]

    def run(self, program: str, *words: str) -> None:
        """Run a program of PostgreSQL's with this server."""
        here = ("--host=127.0.0.1", f"--port={self.port}", f"--username={_USER}")
        subprocess.run(_as_user(str(_installed() / program), *here, *words), check=True, cwd="/")

    def give_file(self, name: str, content: bytes) -> None:
        """Put a file that only the server reads into its folder."""
        path = self.folder / "data" / name
        path.write_bytes(content)
        path.chmod(0o600)
        if os.geteuid() == 0:
            shutil.chown(path, _USER, _USER)

    def setting(self, name: str, value: str) -> None:
        """Change a setting of the running server."""
        self.execute(f"alter system set {name} = '{value}'")
        self.execute("select pg_reload_conf()")
        wait_until(lambda: self.execute(f"show {name}")[0][0] == value, 20)

    def execute_when_started(self, statement: str) -> None:
        """Start it, change it, and start it again."""
        self.start()
        self.execute(statement)
        self.execute("select pg_reload_conf()")

    @contextmanager
    def holding(self, statement: str, database: str) -> Iterator[None]:
        """Have a transaction open that keeps what a statement locks."""
        with suppress(psycopg.OperationalError), psycopg.connect(self.url(database)) as connection:
            connection.execute(statement.encode())
            yield

    def _processes(self) -> list[psutil.Process]:
        assert self._process is not None
        main = psutil.Process(self._process.pid)
        return [main, *main.children(recursive=True)]

    def kill(self) -> None:
        """End all of it as a power cut would, but for what the kernel has."""
        assert self._process is not None
        if self._process.poll() is not None:
            return
        processes = self._processes()
        for one in processes:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self._process.wait()
        psutil.wait_procs(processes, timeout=20)

    def stop(self) -> None:
        """End it in good order; connections are closed."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(60)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Have all of it stand still."""
        processes = self._processes()
        for one in processes:
            one.suspend()
        try:
            yield
        finally:
            for one in reversed(processes):
                with suppress(psutil.NoSuchProcess):
                    one.resume()


def _installed() -> Path:
    found = binaries()
    assert found is not None
    return found


@contextmanager
def postgres_server(*options: str) -> Iterator[PostgresServer]:
    """Run a server in a folder of its own; the test is skipped where none is installed."""
    if binaries() is None:
        pytest.skip("PostgreSQL is not installed (apt: postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="everstep-postgres-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, _USER, _USER)
        subprocess.run(
            _as_user(
                str(_installed() / "initdb"), "--pgdata", str(folder / "data"), "--auth=trust",
                f"--username={_USER}", "--encoding=UTF8", "--no-sync", "--locale=C.UTF-8",
            ),
            check=True, stdout=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        with reserved_port() as port:
            server = PostgresServer(folder, port, list(options)).start()
            try:
                yield server
            finally:
                server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
