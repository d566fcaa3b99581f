"""Command line of a fleet: how long `everstep nodes` takes at 2,000 nodes, beside Slurm's `sinfo`.

A controller has 2,000 agents on real streams with certificates, 40 of them with a finding. Each
command is started as from a shell and timed until it has ended: interpreter, imports, handshake,
answer. `sinfo` asks a slurmctld that knows as many nodes, none of which runs a slurmd; without
Slurm its rows are left out. Wall time: the machine has to be quiet.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.processes import free_port, module_command, running, wait_for_port
from harness.session import Benchmark, Part
from harness.table import Row, row
from harness.talk import Talk
from transport.agent import name_of

from fakes.authority import Authority

# What a person waits for without noticing, and what a script may take.
_SUMMARY_S, _ALL_S = 0.5, 1.0
_SLURMCTLD_WAIT_S = 60.0
_SLURMD_PORT = 50_000


@dataclass(frozen=True, slots=True)
class Command:
    """A command of ours, how long it may take, and what of `sinfo` it is like."""

    name: str
    arguments: tuple[str, ...]
    target_s: float
    like: tuple[str, ...]


COMMANDS = (
    Command("nodes --summary", ("nodes", "--summary"), _SUMMARY_S, ("-s",)),
    Command("nodes", ("nodes",), _SUMMARY_S, ("-R", "-N")),
    Command("nodes --state suspect", ("nodes", "--state", "suspect"), _SUMMARY_S, ("-t", "down")),
    Command("nodes --domain rack-07", ("nodes", "--domain", "rack-07"), _SUMMARY_S, ()),
    Command(
        "nodes --finding XidFatal --sort since",
        ("nodes", "--finding", "XidFatal", "--sort", "since"),
        _SUMMARY_S,
        (),
    ),
    Command(
        "nodes --node 'gpu-[0001-0016]'", ("nodes", "--node", "gpu-[0001-0016]"), _SUMMARY_S,
        ("-n", "gpu-[0001-0016]"),
    ),
    Command("nodes --all --long", ("nodes", "--all", "--long"), _ALL_S, ("-N", "-l")),
    Command("nodes --json", ("nodes", "--json"), _ALL_S, ("--json",)),
)  # fmt: skip


def certificates(folder: Path, nodes: int) -> Mapping[str, Path]:
    """Write those of controller, agents and an operator; return the operator's options."""
    authority = Authority(folder)
    authority.issue("controller", "controller")
    for index in range(nodes):
        authority.issue(name_of(index), "agent")
    mine = authority.issue("ann", "operator")
    assert mine.ca is not None
    assert mine.certificate is not None
    assert mine.key is not None
    return {"--tls-ca": mine.ca, "--tls-certificate": mine.certificate, "--tls-key": mine.key}


@contextlib.contextmanager
def fleet(folder: Path, nodes: int) -> Iterator[list[str]]:
    """Run the controller and its agents; yield the options that reach it."""
    options = certificates(folder, nodes)
    port = free_port()
    config = folder / "controller.toml"
    config.write_text(
        f'listen = "127.0.0.1:{port}"\nmetrics = ""\njournal = "{folder}/journal.sqlite"\n'
        f'log_level = "error"\n[tls]\nca = "{folder}/ca.pem"\n'
        f'certificate = "{folder}/controller.pem"\nkey = "{folder}/controller.key"\n'
    )
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "everstep_controller.main",
        "--config",
        config,
    ]
    with running(command) as controller:
        wait_for_port(port, controller)
        generator = module_command("transport.fleet", port, nodes, folder)
        with running(generator) as agents:
            talk = Talk(agents)
            talk.ask("connect")
            talk.ask("check")
            reach = [f"localhost:{port}", *(str(part) for pair in options.items() for part in pair)]
            yield ["--controller", *reach]


@contextlib.contextmanager
def slurm(folder: Path, nodes: int) -> Iterator[Mapping[str, str] | None]:
    """Run munged and slurmctld; yield the environment of `sinfo`, None where there is no Slurm."""
    if any(shutil.which(name) is None for name in ("slurmctld", "munged", "sinfo")):
        yield None
        return
    folder = folder / "slurm"
    folder.mkdir(0o755)
    folder.parent.chmod(0o755)  # munged wants its socket to be reached by everybody
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    conf = folder / "slurm.conf"
    last = name_of(nodes - 1).removeprefix("gpu-")
    (folder / "state").mkdir()
    conf.write_text(
        "ClusterName=bench\nSlurmctldHost=localhost(127.0.0.1)\n"
        f"SlurmctldPort={free_port()}\nSlurmUser=root\nAuthType=auth/munge\n"
        f"AuthInfo=socket={folder}/munge.socket\nStateSaveLocation={folder}/state\n"
        f"SlurmctldPidFile={folder}/slurmctld.pid\nProctrackType=proctrack/linuxproc\n"
        "TaskPlugin=task/none\nMpiDefault=none\nMailProg=/bin/true\nSelectType=select/cons_tres\n"
        # Nobody listens there: addresses only have to be some.
        f"NodeName=gpu-[0000-{last}] NodeHostname=localhost NodeAddr=127.0.0.1 "
        f"Port=[{_SLURMD_PORT}-{_SLURMD_PORT + nodes - 1}] CPUs=192 RealMemory=1000\n"
        f"PartitionName=batch Nodes=gpu-[0000-{last}] Default=YES MaxTime=INFINITE State=UP\n"
    )
    environment = os.environ | {"SLURM_CONF": str(conf)}
    munged = [
        "munged", "--foreground", "--force", f"--socket={folder}/munge.socket", f"--key-file={key}",
        f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log",
        f"--seed-file={folder}/munge.seed",
    ]  # fmt: skip
    with running(munged), running(["slurmctld", "-D", "-c"], environment):
        _wait_for_slurm(environment)
        yield environment


def _wait_for_slurm(environment: Mapping[str, str]) -> None:
    deadline = time.monotonic() + _SLURMCTLD_WAIT_S
    while time.monotonic() < deadline:
        ping = subprocess.run(["scontrol", "ping"], env=environment, capture_output=True, text=True)
        if " is UP" in ping.stdout:
            return
        time.sleep(0.1)
    raise SystemExit("slurmctld did not start")


def timed(command: Sequence[str], repeats: int, environment: Mapping[str, str]) -> list[float]:
    """Return how long each run took. Ends the benchmark where one fails."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        times.append(time.perf_counter() - began)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return times[1:]  # the first fills the page cache


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each command, and for what `sinfo` takes for the like of it."""
    everstep = str(Path(sys.executable).with_name("everstep"))
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        reach = stack.enter_context(fleet(folder, options.nodes))
        queue = stack.enter_context(slurm(folder, options.nodes))
        # Where this is set, each start compiles all of its source again.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        for one in COMMANDS:
            peer = None
            if queue is not None and one.like:
                took_s = timed(["sinfo", *one.like], options.repeats, queue)
                peer = row(f"sinfo {' '.join(one.like)}", took_s, "s")
                yield peer
            # A terminal's width changes nothing: the answer goes into a pipe.
            took_s = timed([everstep, *one.arguments, *reach], options.repeats, environment)
            yield row(f"everstep {one.name}", took_s, "s", peer, one.target_s)


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[Part("nodes", 150.0, measure)],
    repeats=5,
    add_options=lambda parser: parser.add_argument(
        "--nodes", type=int, default=2000, metavar="N", help="size of the fleet"
    ),
    quick={"nodes": 40, "repeats": 1},
)
