"""Snapshot queries: operators list a job's snapshots, and drop what an ended job has left."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from everstep_common.reports import Standbys
from everstep_controller.api.admin.errors import (
    OrderRefusedError,
    UnknownNameError,
    current_job_named,
    job_named,
    node_named,
)
from everstep_controller.api.admin.messages import snapshot_messages
from everstep_controller.core.events import OperatorForgotJob
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.snapshot_table import (
    SnapshotView,
    count_snapshots,
    snapshot_steps,
    snapshot_table,
)
from everstep_controller.runtime.runtime import Runtime
from everstep_proto.answers import answer
from everstep_proto.generated import admin_pb2

# An agent drops memory at once; whoever waits longer is told which nodes are still to answer.
_ANSWER_S = 5.0
_POLL_S, _POLL_S_MAX = 0.02, 1.0


class SnapshotSource(Protocol):
    """Source of the catalogues, also of jobs that have ended and keep copies."""

    def view(self, job: str) -> SnapshotView | None:
        """Return what is known of a job's snapshots now; None for no job."""
        ...

    def copies(self, job: str) -> Iterable[Copy]:
        """Yield the single copies of a job, newest step first."""
        ...

    def memory_bytes(self, job: str) -> Counter[str]:
        """Return how much memory each node has in use for a job's snapshots."""
        ...

    def standbys(self, job: str) -> Mapping[str, Standbys]:
        """Return what waits on each node to become ranks of a job."""
        ...


class SnapshotOperations:
    """Operators' calls about snapshots; UnknownNameError, and ``forget`` JournalFull."""

    def __init__(self, runtime: Runtime, vault: SnapshotSource) -> None:
        self._runtime = runtime
        self._vault = vault

    async def table(self, name: str) -> admin_pb2.Snapshots:
        """Return every step of a job and what a restart would go back to."""
        job = current_job_named(self._runtime.state, name)
        view, lines = self._view(job.name), []
        for line in snapshot_steps(view):
            lines.append(line)
            # A step of a large job costs 10 ms, and streams wait meanwhile.
            await asyncio.sleep(0)
        return snapshot_messages.snapshots(snapshot_table(view, lines), job)

    def complete(self, detail: admin_pb2.JobDetail) -> None:
        """Add to what is known of a job how its state is kept."""
        name = detail.summary.job
        job, view = job_named(self._runtime.state, name), self._view(name)
        numbers = count_snapshots(view)
        detail.cadence.CopyFrom(snapshot_messages.cadence(numbers, view.cadence.reason, job))
        if storage := snapshot_messages.storage(numbers):
            detail.storage.CopyFrom(storage)
        detail.standbys.extend(
            answer(admin_pb2.StandbyLine, one, node=node)
            for node, one in sorted(self._vault.standbys(name).items())
        )

    def copies(self, request: admin_pb2.ListCopiesRequest) -> Iterator[admin_pb2.CopyLine]:
        """Return single copies, of one step or node where it is named.

        They are made one by one: a large job has a hundred thousand, and streams wait meanwhile.
        """
        state = self._runtime.state
        job = current_job_named(state, request.job)
        if request.node:
            node_named(state, request.node)
        step = request.step if request.HasField("step") else None
        return (
            snapshot_messages.copy(held, unreachable=not self._connected(held.node))
            for held in self._vault.copies(job.name)
            if step in (None, held.step) and request.node in ("", held.node)
        )

    async def forget(self, name: str, operator: str) -> admin_pb2.ForgetJobReply:
        """Have the memory of an ended job dropped. Raises OrderRefusedError."""
        job = current_job_named(self._runtime.state, name)
        if problem := _problem(job):
            raise OrderRefusedError(problem)
        before = self._vault.memory_bytes(job.name)
        taken = await self._runtime.submit(OperatorForgotJob(job.id, operator))
        refused = self._runtime.state.halted or taken.rejected
        job = job_named(self._runtime.state, job.id)
        if refused or not job.ending.forgotten_by:
            why = refused or f"{job.name} has just begun again"
            raise OrderRefusedError(f"the controller did not take the order: {why}")
        involved = {*before, *job.launchers, *job.lineage.holders}
        await self._dropped(job.name, [node for node in involved if self._connected(node)])
        return self._outcome(job, before, involved)

    def _outcome(
        self, job: JobRecord, before: Mapping[str, int], involved: set[str]
    ) -> admin_pb2.ForgetJobReply:
        here = {node for node in involved if self._connected(node)}
        left = self._vault.memory_bytes(job.name)
        dropped = sorted(node for node in here if before.get(node) and not left.get(node))
        dropping = sorted(node for node in here if left.get(node))
        away = sorted(involved - here)
        storage = job.spec.storage
        return admin_pb2.ForgetJobReply(
            job=job.name,
            dropped=dropped,
            dropped_bytes=sum(before[node] for node in dropped),
            dropping=dropping,
            dropping_bytes=sum(left[node] for node in dropping),
            away=away,
            away_bytes=sum(before.get(node, 0) for node in away),
            stays=storage.path if storage else "",
        )

    async def _dropped(self, job: str, nodes: Sequence[str]) -> None:
        """Wait, for a while, until none of these nodes reports memory of the job."""
        loop, pause_s = asyncio.get_running_loop(), _POLL_S
        due = loop.time() + _ANSWER_S
        while loop.time() < due:
            left = self._vault.memory_bytes(job)
            if not any(left.get(node) for node in nodes):
                return
            await asyncio.sleep(pause_s)
            # A look at all copies of a large job costs ten milliseconds.
            pause_s = min(2 * pause_s, _POLL_S_MAX)

    def _view(self, name: str) -> SnapshotView:
        view = self._vault.view(name)
        if view is None:
            raise UnknownNameError(f"no job named {name!r}")
        return view

    def _connected(self, node: str) -> bool:
        known = self._runtime.state.nodes.get(node)
        return known is not None and known.liveness.connected


def _problem(job: JobRecord) -> str:
    """Return why a job's memory cannot be forgotten; empty when it can."""
    if job.state is JobState.ENDED:
        return ""
    return (
        f"{job.name} is {job.state.value}, and its snapshots are what it would go on from: end it "
        f"first (Ctrl-C its 'everstep run'), then: everstep job {job.name} forget"
    )
