"""A real Slurm cluster on loopback: munged, slurmctld and several slurmd, which end with a test."""

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from everstep_cli.demo import reaper
from everstep_cli.demo.processes import Child, OwnedProcesses
from everstep_cli.demo.reaper import Identity
from fakes.ports import reserved_port
from fakes.waits import wait_until

_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun")
_PACKAGES = "munge slurm-client slurmctld slurmd slurm-wlm-basic-plugins"
# Several slurmd on one machine, told apart by -N, and no control groups: those are the machine's.
# The times are the shortest that it takes, so that a test need not wait for a minute.
_CONF = """\
ClusterName=everstep
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
TaskProlog={folder}/task_prolog
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
MailProg=/bin/true
ReturnToService=1
SlurmdTimeout=10
SlurmctldTimeout=10
KillWait=5
UnkillableStepTimeout=15
SchedulerParameters=batch_sched_delay=1,sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
"""
# The first version where there is one: of a machine with both, Slurm takes no other.
_VERSION = "v1" if Path("/sys/fs/cgroup/freezer").is_dir() else "v2"
_GROUPS = f"CgroupPlugin=cgroup/{_VERSION}\nCgroupMountpoint=/sys/fs/cgroup\nCgroupAutomount=no\n"
_NODE = (
    "NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=4 Sockets=1 "
    "CoresPerSocket=4 ThreadsPerCore=1 RealMemory=1000 State=UNKNOWN"
)


def missing() -> str:
    """Return why no cluster can be run here; empty when one can."""
    # Debian has the daemons where only root's PATH finds them.
    absent = [name for name in _PROGRAMS if shutil.which(name, path=_path()) is None]
    return f"not installed: {', '.join(absent)} (apt: {_PACKAGES})" if absent else ""


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


@dataclass(slots=True)
class SlurmCluster:
    """What belongs to one test; ``running_cluster`` makes it and leaves nothing of it."""

    folder: Path
    owned: OwnedProcesses
    environ: Mapping[str, str]
    ports: Mapping[str, int]
    # More lines for slurm.conf, which come first; a key that is there already is replaced.
    lines: Sequence[str] = ()
    daemons: dict[str, Child] = field(default_factory=dict)

    def start(self, controller_port: int, task_prolog: str) -> None:
        """Start everything, and return when all nodes are idle."""
        user = pwd.getpwuid(os.geteuid()).pw_name
        conf = _CONF.format(port=controller_port, user=user, folder=self.folder).splitlines()
        conf += [_NODE.format(name=name, port=port) for name, port in self.ports.items()]
        conf += [f"PartitionName=all Nodes={','.join(self.ports)} Default=YES State=UP"]
        given = {_key(line) for line in self.lines}
        lines = [*self.lines, *(line for line in conf if _key(line) not in given)]
        (self.folder / "slurm.conf").write_text("".join(f"{line}\n" for line in lines))
        if any("/cgroup" in line for line in lines):
            (self.folder / "cgroup.conf").write_text(_GROUPS)
        for name in ("state", *(f"spool/{node}" for node in self.ports)):
            (self.folder / name).mkdir(parents=True)
        prolog = self.folder / "task_prolog"
        prolog.write_text(task_prolog)
        prolog.chmod(0o755)
        self._start_munge()
        self._start("slurmctld", "slurmctld", "-D", "-c")
        for node in self.ports:
            self._start(node, "slurmd", "-D", "-N", node)
        # Nodes of more lines have no slurmd.
        idle = dict.fromkeys(self.ports, "idle").items()
        wait_until(lambda: self.states().items() >= idle)

    def states(self) -> dict[str, str]:
        """Return what Slurm thinks of each node."""
        lines = self.run("sinfo", "-h", "-N", "-o", "%N %T").stdout.splitlines()
        return dict(line.split() for line in lines)

    def jobs(self) -> list[str]:
        """Return the numbers of the jobs that are not over."""
        return self.run("squeue", "-h", "-o", "%i").stdout.split()

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run one of Slurm's commands to its end."""
        return subprocess.run(
            command, env=self.environ, capture_output=True, text=True, timeout=60, check=False
        )

    def submit(self, name: str, command: Sequence[str], environ: Mapping[str, str]) -> Child:
        """Start a command as a user would on a login node; what it prints goes to NAME.log."""
        return self.owned.start(name, command, {**environ, **self.environ})

    def restart_controller(self) -> None:
        """Restart slurmctld, which keeps its state; return when it answers."""
        self.stop_controller()
        self.start_controller()
        wait_until(lambda: self.run("scontrol", "ping").returncode == 0)

    def stop_controller(self) -> None:
        """End slurmctld, which saves its state."""
        before = self.daemons.pop("slurmctld").process
        before.send_signal(signal.SIGTERM)
        before.wait(60)

    def start_controller(self) -> None:
        """Start slurmctld with the state that was saved."""
        self._start("slurmctld", "slurmctld", "-D")

    def start_standby(self, host: str) -> None:
        """Start a slurmctld on a second machine, which waits until the first one is lost."""
        named = f'hostname {host} && exec "$@"'
        self._start(host, "unshare", "--uts", "sh", "-c", named, "sh", "slurmctld", "-D")

    def lose_controller(self) -> None:
        """Kill slurmctld, as when its machine loses its power."""
        slurmctld = self.daemons.pop("slurmctld").process
        slurmctld.kill()
        slurmctld.wait(20)

    def start_node(self, node: str) -> None:
        """Start the slurmd of a node that was lost."""
        self._start(node, "slurmd", "-D", "-N", node)

    def lose(self, node: str) -> None:
        """Kill all that Slurm and its jobs run on a node, as when its power fails."""
        slurmd = self.daemons.pop(node)
        slurmd.process.kill()
        slurmd.process.wait(20)
        while running := self._running(node):
            for process in running:
                reaper.kill(process)

    def _running(self, node: str) -> list[Identity]:
        """Return what jobs run on a node; the step daemons first, which would tell of the rest."""
        parents = reaper.parents()
        # Another cluster, of a test beside this one, has nodes of the same names.
        ours = {"SLURMD_NODENAME": node, "SLURM_CONF": self.environ["SLURM_CONF"]}
        own = [pid for pid in parents if ours.items() <= reaper.environment(pid).items()]
        daemons = {parents[pid] for pid in own if self._is_step_daemon(parents[pid])}
        return [process for process in map(reaper.identify, [*daemons, *own]) if process]

    def stop(self) -> None:
        """End jobs and daemons; step daemons have neither our parentage nor our environment."""
        for child in self.daemons.values():
            child.process.send_signal(signal.SIGKILL)
        daemons = [pid for pid in reaper.parents() if self._is_step_daemon(pid)]
        for process in filter(None, map(reaper.identify, daemons)):
            reaper.kill(process)

    def _is_step_daemon(self, pid: int) -> bool:
        try:
            name, cwd = Path(f"/proc/{pid}/comm").read_text(), Path(f"/proc/{pid}/cwd").readlink()
            return name == "slurmstepd\n" and cwd.is_relative_to(self.folder)
        except OSError:
            return False

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        files = {"socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{name}={self.folder}/munge.{end}" for name, end in files.items()]
        self._start("munged", "munged", "--foreground", "--force", f"--key-file={key}", *options)
        wait_until(lambda: (self.folder / "munge.sock").exists())

    def _start(self, name: str, *command: str) -> None:
        # Step daemons inherit the folder; nothing else tells whose they are.
        line = ["env", "-C", str(self.folder), *command]
        self.daemons[name] = self.owned.start(f"slurm-{name}", line, self.environ)


def _key(line: str) -> str:
    """Return what a line is about: a parameter, or one node or partition."""
    name, _, value = line.partition("=")
    return f"{name}={value.split()[0]}" if name in ("NodeName", "PartitionName") else name


@contextmanager
def running_cluster(
    owned: OwnedProcesses,
    folder: Path,
    nodes: Sequence[str],
    task_prolog: str,
    lines: Sequence[str] = (),
) -> Iterator[SlurmCluster]:
    """Yield a cluster whose nodes are idle. ``task_prolog``: what its lines export, tasks have."""
    environ = {"PATH": _path(), "SLURM_CONF": str(folder / "slurm.conf")}
    folder.mkdir()
    with ExitStack() as ports:
        own, *others = (ports.enter_context(reserved_port()) for _ in ("controller", *nodes))
        known = dict(zip(nodes, others, strict=True))
        cluster = SlurmCluster(folder, owned, environ, known, lines)
        try:
            cluster.start(own, task_prolog)
            yield cluster
        finally:
            cluster.stop()
