"""Several Slurm clusters with one slurmdbd and its database: what `-M` and AdminLevel need."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from everstep_cli.demo.processes import OwnedProcesses
from fakes.ports import reserved_port
from fakes.waits import wait_until
from real import slurm_cluster
from real.slurm_cluster import SlurmCluster, running_cluster

_PROGRAMS = ("slurmdbd", "sacctmgr", "mariadbd", "mariadb-install-db", "mariadb")
_PACKAGES = "slurmdbd slurm-wlm-mysql-plugin mariadb-server-core mariadb-client-core"
_CONF = """\
DbdHost=localhost
DbdPort={port}
SlurmUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=root
StorageLoc=slurm
"""
_LINES = (
    "AuthInfo=socket={folder}/munge.sock,cred_expire=5",
    "AccountingStorageType=accounting_storage/slurmdbd",
    "AccountingStorageHost=localhost",
    "AccountingStoragePort={port}",
    "AccountingStoragePass={folder}/munge.sock",
)


def missing() -> str:
    """Return why none can be run here; empty when one can."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    absent = [name for name in _PROGRAMS if shutil.which(name, path=path) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (apt: {_PACKAGES})"
    return slurm_cluster.missing()


@dataclass(frozen=True, slots=True)
class Accounting:
    """A slurmdbd that answers, and the folder of its files."""

    folder: Path
    owned: OwnedProcesses
    environ: Mapping[str, str]
    port: int

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the lines of slurm.conf by which a cluster is accounted for here."""
        return tuple(line.format(folder=self.folder, port=self.port) for line in _LINES)

    def sacctmgr(self, *words: str) -> str:
        """Change what is accounted, without a question; return what was printed."""
        return subprocess.run(
            ["sacctmgr", "--immediate", "--noheader", "--parsable2", *words],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        ).stdout

    @contextmanager
    def cluster(
        self, name: str, nodes: Sequence[str], lines: Sequence[str] = ()
    ) -> Iterator[SlurmCluster]:
        """Yield a cluster that is known to slurmdbd by its name."""
        self.sacctmgr("add", "cluster", name)
        own = (f"ClusterName={name}", *self.lines, *lines)
        folder = self.folder / name
        with running_cluster(self.owned, folder, nodes, "#!/bin/sh\n", own) as slurm:

            def is_known() -> bool:
                told = self.sacctmgr("show", "cluster", name, "format=controlport")
                return told.strip() not in ("", "0")

            wait_until(is_known, 60.0, f"{name} at slurmdbd")
            yield slurm


@contextmanager
def running_accounting() -> Iterator[Accounting]:
    """Yield a slurmdbd with a database of its own, and a munged that all clusters share."""
    folder = Path(tempfile.mkdtemp(prefix="es"))
    folder.chmod(0o711)
    owned = OwnedProcesses(folder, keep=False)
    environ = {
        "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
        "SLURM_CONF": f"{folder}/slurm.conf",
    }
    with ExitStack() as stack:
        stack.callback(owned.close)
        port, database_port = (stack.enter_context(reserved_port()) for _ in range(2))
        accounting = Accounting(folder, owned, environ, port)
        _start_munge(accounting)
        _start_database(accounting, database_port)
        _start_slurmdbd(accounting, database_port)
        yield accounting


def _start_munge(accounting: Accounting) -> None:
    folder = accounting.folder
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    files = {"socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    options = [f"--{name}={folder}/munge.{end}" for name, end in files.items()]
    command = ["munged", "--foreground", "--force", f"--key-file={key}", *options]
    accounting.owned.start("accounting-munged", command, accounting.environ)
    wait_until((folder / "munge.sock").exists)


def _start_database(accounting: Accounting, port: int) -> None:
    data = accounting.folder / "database"
    small = ("--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M", "--user=root")
    options = ("--no-defaults", f"--datadir={data}", *small)
    subprocess.run(
        ["mariadb-install-db", *options, "--auth-root-authentication-method=normal"],
        env=accounting.environ,
        capture_output=True,
        timeout=120,
        check=True,
    )
    socket = accounting.folder / "database.sock"
    options = (*options, f"--socket={socket}", f"--port={port}", "--bind-address=127.0.0.1")
    accounting.owned.start("accounting-mariadbd", ["mariadbd", *options], accounting.environ)
    asked = ["mariadb", "--no-defaults", f"--socket={socket}", "--user=root", "--execute=do 1"]
    wait_until(lambda: _succeeds(asked, accounting.environ), 60.0, "no database")


def _start_slurmdbd(accounting: Accounting, database_port: int) -> None:
    folder = accounting.folder
    conf = _CONF.format(
        port=accounting.port,
        database_port=database_port,
        user=pwd.getpwuid(os.geteuid()).pw_name,
        folder=folder,
    )
    (folder / "slurmdbd.conf").write_text(conf)
    (folder / "slurmdbd.conf").chmod(0o600)
    # sacctmgr reads who it asks from slurm.conf.
    lines = ("ClusterName=none", "SlurmctldHost=localhost", *accounting.lines)
    (folder / "slurm.conf").write_text("".join(f"{line}\n" for line in lines))
    accounting.owned.start("accounting-slurmdbd", ["slurmdbd", "-D"], accounting.environ)
    wait_until(lambda: bool(accounting.sacctmgr("show", "user", "root")), 60.0, "no slurmdbd")


def _succeeds(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    done = subprocess.run(command, env=environ, capture_output=True, timeout=60, check=False)
    return done.returncode == 0
