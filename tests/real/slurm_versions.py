"""Slurm of other versions: a root of Debian with it, in which the driver's own programs are run."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from everstep_controller.drivers.drivers import DriversConfig, configured_drivers
from everstep_controller.drivers.port import IsolationDriver
from everstep_controller.drivers.slurm.config import SlurmDriverConfig
from fakes.waits import wait_until
from real.daemons import free_port
from real.slurm_drains import CLUSTER_ID

# By the version of Slurm that they had in 2026-11. Their releases are moving targets.
SUITES = {"24.11": "trixie", "26.05": "sid"}
_MIRROR = "http://deb.debian.org/debian"
_PACKAGES = "slurmctld,slurmd,slurm-client,slurm-wlm-basic-plugins,munge"
_CONF = """\
ClusterName=everstep
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=/s/munge.sock
StateSaveLocation=/s/state
SlurmdSpoolDir=/s/spool/%n
SlurmctldPidFile=/s/slurmctld.pid
SlurmdPidFile=/s/slurmd.%n.pid
SlurmctldLogFile=/s/slurmctld.log
SlurmdLogFile=/s/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
MpiDefault=none
MailProg=/bin/true
ReturnToService=1
UnkillableStepTimeout=60
SlurmdParameters=config_overrides
{nodes}
PartitionName=all Nodes={names} Default=YES State=UP
PartitionName=debug Nodes=n[1-2] State=UP
"""
_NODE = (
    "NodeName=n{number} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=2 "
    "RealMemory=100 Feature=h100 State=UNKNOWN"
)
# Nodes that slurmctld knows, and that never answer it.
_SILENT = (
    "SlurmdTimeout=65533\nNodeName={names} NodeHostname=localhost NodeAddr=127.0.0.1 Port=1 CPUs=2 "
    "RealMemory=100 Feature=h100 State=UNKNOWN"
)
NODES = ("n1", "n2", "n3", "n4")


def missing() -> str:
    """Return why no root can be made here; empty where one can."""
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        return "needs root and mmdebstrap (apt: mmdebstrap)"
    return ""


@dataclass(frozen=True, slots=True)
class VersionedSlurm:
    """A cluster of some version, whose programs are wrapped for the driver."""

    root: Path
    bin_folder: Path

    @property
    def drivers(self) -> SlurmDriverConfig:
        """Return the driver's configuration, with the programs of this version."""
        return SlurmDriverConfig(enabled=True, bin_folder=self.bin_folder)

    def driver(self) -> IsolationDriver:
        """Return the driver, with the programs of this version."""
        config = DriversConfig(slurm=self.drivers, call_timeout_s=120.0)
        return configured_drivers(config, lambda _: {}, cluster_id=lambda: CLUSTER_ID)["slurm"]

    def run(self, *command: str) -> str:
        """Run a program in the root; return what it printed."""
        return subprocess.run(
            _within(self.root, *command), capture_output=True, text=True, timeout=120, check=True
        ).stdout

    def node(self, name: str) -> tuple[str, str]:
        """Return the states and the reason of a node, as people see them."""
        words = ("-h", "-N", "-p", "all", "-n", name, "-O", "StateComplete:0@@,Reason:0@@")
        state, reason, _ = self.run("sinfo", *words).split("@@")
        return state, reason


@contextmanager
def running_version(version: str, silent: int = 0) -> Iterator[VersionedSlurm]:
    """Make a root of a version, or take that of EVERSTEP_TEST_ROOTS, and run a Slurm in it.

    ``silent``: how many nodes it has besides, without a slurmd.
    """
    with ExitStack() as stack:
        kept = os.environ.get("EVERSTEP_TEST_ROOTS", "")
        folder = Path(kept or stack.enter_context(tempfile.TemporaryDirectory(prefix="es-root-")))
        root = folder / SUITES[version]
        if not root.is_dir():
            _make(root, SUITES[version])
        for name in ("proc", "sys", "dev"):
            subprocess.run(["mount", "--rbind", f"/{name}", root / name], check=True)
            subprocess.run(["mount", "--make-rslave", root / name], check=True)
            stack.callback(_unmount, root / name)
        shutil.rmtree(root / "s", ignore_errors=True)
        _configure(root, silent)
        stack.callback(_stop, root)
        _start(root)
        yield VersionedSlurm(root, _wrapped(root))


def _make(root: Path, suite: str) -> None:
    # The mirror of an unreleased suite may be older than it allows itself.
    late = 'Acquire::Check-Valid-Until "false"'
    command = ["mmdebstrap", f"--aptopt={late}", "--variant=minbase", f"--include={_PACKAGES}"]
    subprocess.run([*command, suite, str(root), _MIRROR], check=True, capture_output=True)


def _unmount(path: Path) -> None:
    subprocess.run(["umount", "--recursive", "--lazy", path], check=False)


def _configure(root: Path, silent: int) -> None:
    folder = root / "s"
    for name in ("state", *(f"spool/{node}" for node in NODES)):
        (folder / name).mkdir(parents=True)
    nodes = "\n".join(
        _NODE.format(number=number, port=free_port()) for number in range(1, len(NODES) + 1)
    )
    names = f"n[1-{len(NODES) + silent}]"
    if silent:
        nodes += "\n" + _SILENT.format(names=f"n[{len(NODES) + 1}-{len(NODES) + silent}]")
    conf = _CONF.format(port=free_port(), nodes=nodes, names=names)
    (folder / "slurm.conf").write_text(conf)
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o600)
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost {os.uname().nodename}\n")


def _start(root: Path) -> None:
    files = {"socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    options = [f"--{name}=/s/munge.{end}" for name, end in files.items()]
    lines = [["munged", "--force", "--key-file=/s/munge.key", *options], ["slurmctld", "-c"]]
    lines += [["slurmd", "-N", node] for node in NODES]
    for line in lines:
        # What becomes a daemon keeps a pipe open.
        subprocess.run(
            _within(root, *line),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=120,
        )

    def idle() -> bool:
        asked = _within(root, "sinfo", "-h", "-p", "all", "-t", "idle", "-o", "%D%t")
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        return done.stdout.strip() == f"{len(NODES)}idle"

    wait_until(idle, 120.0, "no idle nodes")


def _stop(root: Path) -> None:
    """End the daemons, by the numbers that they wrote down."""
    for file in [*(root / "s").glob("slurm*.pid"), root / "s/munge.pid"]:
        if file.exists():
            subprocess.run(["kill", "-KILL", file.read_text().strip()], check=False)


def _wrapped(root: Path) -> Path:
    """Return a folder of programs that run those of the root."""
    folder = root / "s" / "bin"
    folder.mkdir()
    for name in ("sinfo", "scontrol", "squeue"):
        line = " ".join(f"'{word}'" for word in _within(root, name))
        (folder / name).write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def _within(root: Path, *command: str) -> list[str]:
    path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
    return ["chroot", str(root), "env", "-i", path, "SLURM_CONF=/s/slurm.conf", *command]
