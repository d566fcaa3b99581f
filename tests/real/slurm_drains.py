"""A Slurm cluster for tests of drains: what people type there, and the driver of a controller."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from everstep_cli.demo.processes import OwnedProcesses
from everstep_controller.core.model.isolation import Hold
from everstep_controller.drivers.drivers import DriversConfig, configured_drivers
from everstep_controller.drivers.port import IsolationDriver
from everstep_controller.drivers.slurm.config import SlurmDriverConfig
from fakes.waits import wait_until
from real.slurm_cluster import SlurmCluster, running_cluster

CLUSTER_ID = "cluster-1"


@dataclass(frozen=True, slots=True)
class Drains:
    """A cluster whose nodes are idle, and what somebody does there by hand."""

    slurm: SlurmCluster
    folder: Path

    @property
    def conf(self) -> Path:
        """Return its slurm.conf."""
        return self.slurm.folder / "slurm.conf"

    def driver(
        self,
        settings: SlurmDriverConfig | None = None,
        launching: Sequence[str] = (),
        remembered: Mapping[str, Hold] | None = None,
    ) -> IsolationDriver:
        """Return the driver of a controller with these settings; ``remembered``: known holds."""
        slurm = replace(settings or SlurmDriverConfig(), enabled=True, conf_file=self.conf)
        return configured_drivers(
            DriversConfig(slurm=slurm, call_timeout_s=60.0),
            lambda _: remembered or {},
            cluster_id=lambda: CLUSTER_ID,
            launching=lambda: frozenset(launching),
        )["slurm"]

    def update(self, node: str, *words: str) -> None:
        """Type an update of a node until something has come of it.

        slurmctld clears the drain of a node that is UNKNOWN, just after its start, and says that
        the update was invalid.
        """
        before, line = self.node(node), ("scontrol", "update", f"nodename={node}", *words)

        def done() -> bool:
            return self.slurm.run(*line).returncode == 0 or self.node(node) != before

        wait_until(done, what=" ".join(line))

    def node(self, name: str) -> tuple[str, str]:
        """Return the states and the reason of a node, as people see them."""
        words = ("-h", "-N", "-n", name, "-O", "StateComplete:0@@,Reason:0@@")
        state, reason, _ = self.slurm.run("sinfo", *words).stdout.split("@@")
        return state, reason

    def said(self, text: str) -> int:
        """Return how often slurmctld has logged a text."""
        return (self.slurm.folder / "slurmctld.log").read_text(errors="replace").count(text)


@contextmanager
def running_drains(
    nodes: Sequence[str], lines: Sequence[str] = (), task_prolog: str = "#!/bin/sh\n"
) -> Iterator[Drains]:
    """Yield a cluster of these nodes. ``lines``: more of slurm.conf, {folder} is the cluster's."""
    folder = Path(tempfile.mkdtemp(prefix="es"))
    folder.chmod(0o711)
    owned = OwnedProcesses(folder, keep=False)
    own = [line.format(folder=folder) for line in lines]
    try:
        with running_cluster(owned, folder / "slurm", nodes, task_prolog, own) as slurm:
            yield Drains(slurm, folder)
    finally:
        owned.close()
