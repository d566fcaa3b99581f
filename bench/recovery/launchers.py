"""Peer launchers of the recovery benchmark (torchrun, NVIDIA's, DLRover's), in their environment.

Each runs the same script, which keeps its state in a file: rank 0 writes it at each step into
/dev/shm and renames it, which is faster than any storage that a cluster would use.

Why torchrun is here twice: its agent (torch 2.13) keeps one TCPStore over all restarts, and
the ranks of a new generation use it without a prefix of their own ("We create a new TCPStore for
every retry", says torch/distributed/rendezvous.py; static and c10d rendezvous of 2.13 do not).
gloo's full mesh then finds the addresses of the dead generation under the same keys: a rank that
reads before its peer has overwritten them connects to a port that is closed, gives up after four
refusals, and takes the attempt down. Four ranks on two cores seldom start close together, and
each failed attempt leaves its own addresses behind. (torch's message has the port in the wrong byte
order: 14771 is 45881, where rank 0 of the first generation listened.)
pytorch#135712 tells of the same with NCCL.
With TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 and --standalone or c10d rendezvous, rank 0 makes a store
of its own in each generation, and torchrun does come back.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness import peers as vault_peers
from harness.processes import ROOT, free_port

# As many as `everstep run` has by default.
RESTARTS_MAX = 10
_CONSTRAINTS = ROOT / "constraints.txt"
# DLRover's master asks for protobuf's version, but its package does not ask for protobuf. Later
# releases of NVRx have wheels for newer C libraries only; pip would take this one in silence.
_MORE = ("protobuf", "nvidia-resiliency-ext==0.4.1")
_MORE_READY = ".ready-recovery"


@dataclass(frozen=True, slots=True)
class Peer:
    """Launcher of another project: its command, and a master that it needs beside it."""

    name: str
    command: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)
    master: Sequence[str] = ()
    master_port: int = 0


def program(name: str) -> str:
    """Return the path of a program in the peers' environment, which is made if it is not there."""
    interpreter = vault_peers.python()
    ready = vault_peers.folder() / _MORE_READY
    if not ready.exists():
        print(f"Installing {', '.join(_MORE)} ...", file=sys.stderr)
        pip = [str(interpreter), "-m", "pip", "install", "--quiet", "-c", str(_CONSTRAINTS), *_MORE]
        subprocess.run(pip, check=True, stdout=sys.stderr)
        ready.touch()
    return str(interpreter.with_name(name))


def torchrun(processes: int) -> Peer:
    """Return torchrun as it comes back with gloo: a store of its own for each generation."""
    command = [program("torchrun"), "--standalone", *_common(processes)]
    return Peer("torchrun", command, {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})


def torchrun_as_shipped(processes: int) -> Peer:
    """Return torchrun with nothing set."""
    return Peer(
        "torchrun as shipped, one TCPStore for all restarts",
        [program("torchrun"), "--standalone", *_common(processes)],
    )


def ft_launcher(processes: int) -> Peer:
    """Return the launcher of NVIDIA's resiliency extension, with its defaults."""
    endpoint = f"localhost:{free_port()}"
    command = [program("ft_launcher"), "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint]
    command += ["--ignore-missing-fault-tol-cfg", *_common(processes)]
    return Peer("ft_launcher (NVRx 0.4.1)", command)


def dlrover_run(processes: int) -> Peer:
    """Return DLRover's launcher and its master.

    The master is started by hand: ``dlrover-run --standalone`` of 0.6.1 starts it with an argument
    too few for torch 2.13 (``SubprocessHandler`` wants ``numa_options``).
    """
    port = free_port()
    master = [program("python"), "-m", "dlrover.python.master.main", "--port", str(port)]
    master += ["--node_num", "1", "--job_name", f"bench-{port}", "--platform", "local"]
    variables = {"DLROVER_MASTER_ADDR": f"127.0.0.1:{port}", "NODE_RANK": "0", "NODE_NUM": "1"}
    command = [program("dlrover-run"), "--nnodes", "1", *_common(processes)]
    return Peer("dlrover-run 0.6.1", command, variables | {"NODE_ID": "0"}, master, port)


def _common(processes: int) -> list[str]:
    return ["--nproc-per-node", str(processes), "--max-restarts", str(RESTARTS_MAX)]
