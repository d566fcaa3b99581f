"""Slurm driver's part of the configuration: the table ``[drivers.slurm]``."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from everstep_common.config import setting
from everstep_common.credential_file import CredentialFile
from everstep_controller.drivers.port import DriverContext, IsolationDriver
from everstep_controller.drivers.slurm.commands import SlurmAccess, SlurmCommands
from everstep_controller.drivers.slurm.driver import SlurmDriver, SlurmPolicy
from everstep_controller.drivers.slurm.names import NodeNames, NoteField

_CLUSTER_NAME = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmDriverConfig:
    """A Slurm whose nodes Everstep drains, and whose drains it reads; see docs/slurm.md."""

    enabled: bool = setting(
        False, help="Drain claimed nodes at Slurm, and take the drains of others as claims."
    )
    clusters: tuple[str, ...] = setting(
        (), help="Names of Slurm clusters, as for `sinfo -M`. Empty: that of slurm.conf."
    )
    bin_folder: Path = setting(
        Path(),
        help="Folder of sinfo, scontrol and squeue where they are not on the service's PATH.",
    )
    conf_file: Path = setting(
        Path(), help="slurm.conf where it is not where Slurm's programs look for it."
    )
    jwt_file: CredentialFile | None = setting(
        None,
        help="File with a token (`scontrol token`) by which slurmctld knows the controller, read "
        "at each call; without one it is known by munge, as the user of the service.",
    )
    node_names: NodeNames = setting(
        NodeNames.NAME,
        help="Which name of a node at Slurm is its name in Everstep: name (NodeName), hostname "
        "(NodeHostName) or address (NodeAddr).",
    )
    note_field: NoteField = setting(
        NoteField.NONE,
        help="Field of a node that tells programs of the site who claims it while it is drained "
        "for Everstep: comment, extra, or none. What others wrote there stays.",
    )
    requeue: bool = setting(
        False,
        help="Requeue jobs that run on a node which is drained for Everstep, if their owners allow "
        "it (Requeue=1); never one whose launchers are Everstep's: those leave at a step boundary.",
    )

    def problems(self) -> list[str]:
        """Say what is wrong with the values."""
        found = [
            f"clusters: expected the name of a cluster, got {name!r}"
            for name in self.clusters
            if not _CLUSTER_NAME.fullmatch(name)
        ]
        for key in ("bin_folder", "conf_file"):
            path = getattr(self, key)
            if path != Path() and not os.path.isabs(path):
                found.append(f"{key}: expected an absolute path, got {str(path)!r}")
        return found

    def driver(self, context: DriverContext) -> IsolationDriver | None:
        """See DriverConfig."""
        if not self.enabled:
            return None
        access = SlurmAccess(self.bin_folder, self.conf_file, self.jwt_file)
        policy = SlurmPolicy(
            clusters=self.clusters or ("",),
            node_names=self.node_names,
            note_field=self.note_field,
            requeue=self.requeue,
        )
        return SlurmDriver(SlurmCommands(access, context.call_timeout_s), policy, context)
