"""Slurm's jobs on nodes that are drained for Everstep: who they are, and which may be requeued."""

import re
import secrets
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from everstep_controller.drivers.slurm.commands import SlurmCommands

_FIELDS = ("JobID", "State", "NodeList")
_REQUEUE = re.compile(r" Requeue=([01]) ")
_JOB = re.compile(r"JobId=(\d+) ")
# One requeue of a node's jobs is a command; a reading is not held up by thousands.
_REQUEUED_MAX = 50


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job that has nodes, by its number."""

    number: str
    state: str
    nodes: frozenset[str]


class SlurmJobs:
    """Jobs of Slurm, as far as the driver needs them."""

    def __init__(self, commands: SlurmCommands) -> None:
        self._commands = commands
        # Jobs that were there at the reading before, by cluster.
        self._seen: dict[str, frozenset[str]] = {}

    async def on_nodes(self, cluster: str, nodes: Sequence[str]) -> list[SlurmJob]:
        """Return the jobs on nodes; Slurm is not asked for none. Raises DriverError, OSError."""
        if not nodes:
            return []
        separator = f"|{secrets.token_hex(8)}|"
        fields = ",".join(f"{one}:0{separator}" for one in _FIELDS)
        words = ("--all", "-h", "-t", "R,S,CG,CF", "-w", ",".join(nodes), "-O", fields)
        told = decode_squeue(await self._commands.squeue(cluster, *words), separator)
        return [
            SlurmJob(number, state, await self._names(cluster, listed))
            for number, state, listed in told
        ]

    async def _names(self, cluster: str, listed: str) -> frozenset[str]:
        """Return the names in a list of nodes, which Slurm itself expands."""
        if "[" not in listed:
            return frozenset(listed.split(","))
        shown = await self._commands.show(cluster, "hostnames", listed)
        return frozenset(shown.split())

    async def requeue(
        self, cluster: str, jobs: Sequence[SlurmJob], launching: Collection[str]
    ) -> None:
        """Requeue the jobs that allow it; ``launching``: nodes with launchers of Everstep.

        A job on any of those is, or may be, one of Everstep's: it leaves at a step boundary. One
        that was not there at the reading before may have launchers that are just starting. What
        comes of a requeue is seen at the next reading. Raises DriverError, OSError.
        """
        others = [job for job in jobs if job.nodes.isdisjoint(launching) and job.state == "RUNNING"]
        seen, here = self._seen.get(cluster, frozenset()), frozenset(job.number for job in others)
        self._seen[cluster] = here
        for job in [job for job in others if job.number in seen][:_REQUEUED_MAX]:
            shown = await self._commands.show(cluster, "job", job.number)
            if may_be_requeued(shown, job.number):
                await self._commands.scontrol(cluster, "requeue", job.number)


def decode_squeue(text: str, separator: str) -> Iterator[tuple[str, str, str]]:
    """Yield number, state and list of nodes of each job of ``squeue -h -O``.

    A line that is not whole is left out.
    """
    fields = text.split(separator)[:-1]
    for at in range(0, len(fields) - len(_FIELDS) + 1, len(_FIELDS)):
        number, state, listed = (one.strip() for one in fields[at : at + len(_FIELDS)])
        if number.isdigit():
            yield number, state, listed


def may_be_requeued(shown: str, number: str) -> bool:
    """Return whether the owner of a job allows a requeue, by ``scontrol -o show job``."""
    job, flag = _JOB.match(shown), _REQUEUE.search(shown)
    return job is not None and job[1] == number and flag is not None and flag[1] == "1"
