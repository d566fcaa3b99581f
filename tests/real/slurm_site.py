"""A site for tests: a cluster of Slurm, an agent on each node, and whoever submits jobs there."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from everstep_cli.client.admin import AdminError
from everstep_cli.demo.processes import Child
from everstep_proto.generated import admin_pb2
from integration.real_fleet import RealFleet, running_fleet
from real.ordinary_user import User, import_path, python_for_all
from real.slurm_cluster import SlurmCluster, running_cluster

# Some kernels of OpenBLAS add in another order where a rank has another share of the batch, and
# here jobs go on with other numbers of ranks.
ONE_KERNEL = {"OPENBLAS_CORETYPE": "Haswell", "OMP_NUM_THREADS": "1"}
TIMEOUT_S = 90
TRAINING = Path(__file__).parents[2] / "examples" / "train_numpy.py"
_STEPS = 200
_SRUN = ("srun", "--ntasks-per-node=1", "--no-kill", "--kill-on-bad-exit=0")


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster whose nodes Slurm and Everstep both know."""

    fleet: RealFleet
    slurm: SlurmCluster
    # Whose jobs these are; None: root's.
    user: User | None = None

    @property
    def home(self) -> Path:
        """Return a folder of that user, which all nodes share."""
        return self.fleet.folder / "home"

    def step(self, *options: str, steps: int = _STEPS, every: int = 1) -> list[str]:
        """Return the line that trains on all nodes of an allocation: what a user types."""
        python = python_for_all() if self.user else sys.executable
        run = [*_SRUN, python, "-m", "everstep.entry", "run", *options]
        run += ["--nproc-per-node", "1", "--snapshot-every", str(every)]
        run += ["--token-file", str(self.home / "token"), "--"]
        script = f'exec "$@" --losses {self.fleet.folder}/losses/$EVERSTEP_GENERATION.tsv'
        train = [python, str(TRAINING), "--steps", str(steps)]
        return [*run, "sh", "-c", script, "sh", *train, "--step-seconds-min", "0.02"]

    def submit(self, name: str, command: Sequence[str]) -> Child:
        """Type a command where users do; SLURM_NNODES and the like are its own business."""
        path = import_path() if self.user else ":".join(filter(None, sys.path))
        environ = {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **ONE_KERNEL}
        become = self.user.become if self.user else ()
        return self.slurm.submit(name, [*become, *command], environ)

    def batch(self, name: str, line: str, *options: str) -> Path:
        """Submit a script of this line, a requeue of which is allowed; return what it writes to."""
        script, log = self.fleet.folder / f"{name}.sh", self.home / f"{name}.out"
        script.write_text(f"#!/bin/sh\n#SBATCH --job-name={name} --requeue\nexec {line}\n")
        script.chmod(0o755)
        options = ("--open-mode=append", "-o", str(log), *options)
        submitted = self.submit(f"sbatch-{name}", ["sbatch", *options, str(script)])
        assert submitted.process.wait(TIMEOUT_S) == 0, submitted.log.read_text()
        return log

    def until_step(self, job: str, step: int) -> None:
        """Return when a step is recoverable that is not older."""
        self.fleet.until(f"step {step}", TIMEOUT_S, lambda: self.recoverable(job) >= step)

    def job(self, name: str) -> admin_pb2.JobSummary:
        """Return a job as the controller tells it; an empty one before it knows it."""
        try:
            return self.fleet.sheet(name).summary
        except AdminError:
            return admin_pb2.JobSummary()

    def lose(self, node: str) -> None:
        """Lose a node with its agent."""
        self.fleet.agents.pop(node).process.kill()
        self.slurm.lose(node)

    def recoverable(self, job: str) -> int:
        """Return the newest step that survives the loss of any node; -1 while there is none."""
        try:
            sheet = self.fleet.sheet(job)
        except AdminError:
            return -1
        return sheet.recoverable_step if sheet.has_recoverable else -1


@contextmanager
def running_site(count: int, user: User | None = None, lines: Sequence[str] = ()) -> Iterator[Site]:
    """Yield a site of so many nodes. ``lines``: of slurm.conf, in which {folder} is the fleet's."""
    nodes = [f"node{number}" for number in range(1, count + 1)]
    with running_fleet(*nodes) as fleet:
        # All nodes share this machine's file system, so each is told of its own agent's socket.
        socket = f"{fleet.folder}/$SLURMD_NODENAME/run/agent.sock"
        task_prolog = f'#!/bin/sh\necho "export EVERSTEP_SOCKET={socket}"\n'
        home = fleet.folder / "home"
        home.mkdir()
        if user is not None:
            fleet.folder.chmod(0o711)
            user.own(home, fleet.folder / "losses")
        own = [line.format(folder=fleet.folder) for line in lines]
        slurm_folder = fleet.folder / "slurm"
        with running_cluster(fleet.owned, slurm_folder, nodes, task_prolog, own) as slurm:
            yield Site(fleet, slurm, user)
