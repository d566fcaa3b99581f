"""A training process's connection: restore, slots, commits, progress; fenced by its generation."""

import asyncio
import logging
import os

from everstep_agent.jobs.connection import Connection
from everstep_agent.jobs.job import NodeJob
from everstep_agent.jobs.processes import identify
from everstep_agent.vault.allocator import MemoryShortError
from everstep_agent.vault.copies import Recoverable
from everstep_agent.vault.held import RankMemory
from everstep_agent.vault.reserve import Owner
from everstep_agent.vault.restore import RestoredPart, RestoreError, source_from_wire
from everstep_agent.vault.slots import Grant
from everstep_common import trainer_messages as messages
from everstep_common.frames import FDS_MAX
from everstep_proto.generated import fleet_pb2

logger = logging.getLogger(__name__)


class TrainerSession:
    """One training process, from its Attach to the end of its connection."""

    def __init__(self, connection: Connection, job: NodeJob, attach: messages.Attach) -> None:
        self._connection = connection
        self._job = job
        self._owner = Owner(attach.generation, attach.rank, connection.peer.pid)
        self._memory: RankMemory | None = None
        # What was recoverable when a wait for a slot was in vain, and what was said then.
        self._starved: tuple[Recoverable | None, str] = (None, "")

    async def run(self) -> None:
        """Serve until the connection ends. Raises OSError then."""
        job, rank = self._job, self._owner.rank
        process = identify(self._owner.pid)
        if process is not None:
            job.watch(process)
        plan = job.facts.plan
        step = plan.restore_step if plan.restore else None
        await self._connection.send(messages.Attached(job.desk.site.node, step))
        job.reach(fleet_pb2.PHASE_ATTACHED, rank, job.desk.boot_ns())
        try:
            while True:
                await self._take(await self._connection.receive(messages.FROM_TRAINER))
        finally:
            # What was begun and not committed never was.
            if self._memory is not None:
                self._memory.table.abandon()
                job.vault.bell.ring()

    async def _take(self, message: object) -> None:
        match message:
            case messages.Progress():
                self._progress(message)
            case messages.Ready():
                if not self._over():
                    rank = self._owner.rank
                    self._job.reach(fleet_pb2.PHASE_RESTORED, rank, message.at_boot_ns)
            case messages.Restore():
                await self._restore(message)
            case messages.Reserve():
                await self._reserve(message)
            case messages.Begin():
                await self._begin(message)
            case messages.Commit():
                await self._commit(message)
            case _:
                await self._refuse("this process is attached already; attach once")

    def _over(self) -> bool:
        facts = self._job.facts
        generation = self._owner.generation
        return generation != facts.plan.generation or generation <= facts.stopped

    async def _refuse(self, reason: str) -> None:
        await self._connection.send(messages.Refused(reason))

    def _over_reason(self) -> str:
        return f"generation {self._owner.generation} is over; this process should exit"

    async def _restore(self, message: messages.Restore) -> None:
        plan = self._job.facts.plan
        if self._over():
            await self._connection.send(messages.RestoreFailed(self._over_reason()))
            return
        if not plan.restore:
            await self._connection.send(messages.NothingToRestore())
            return
        sources = [source_from_wire(source) for source in plan.sources]
        try:
            parts = await self._job.restorer.restore(sources, message.names)
        except RestoreError as error:
            await self._connection.send(messages.RestoreFailed(str(error)))
            return
        logger.info(
            "job %s: generation %d: rank %d restored step %d from %s",
            self._job.facts.job,
            self._owner.generation,
            self._owner.rank,
            plan.restore_step,
            ", ".join(sorted({part.node for part in parts})),
        )
        try:
            await self._hand_over(plan.restore_step, parts)
        finally:
            for part in parts:
                part.region.drop()

    async def _hand_over(self, step: int, parts: list[RestoredPart]) -> None:
        if len(parts) > FDS_MAX:
            reason = f"the state is in {len(parts)} copies, more than {FDS_MAX} at once"
            await self._connection.send(messages.RestoreFailed(reason))
            return
        copies = tuple(
            messages.RestoredCopy(part.entries, part.region.size_bytes) for part in parts
        )
        fds: list[int] = []
        try:
            for part in parts:
                fds.append(part.region.open_read_only())
            await self._connection.send(messages.Restored(step, copies), fds)
        finally:
            for fd in fds:
                os.close(fd)

    async def _reserve(self, message: messages.Reserve) -> None:
        if self._over():
            await self._refuse(self._over_reason())
            return
        if message.size_bytes <= 0:
            await self._refuse(f"a slot of {message.size_bytes} bytes; reserve at least one")
            return
        try:
            memory = await self._job.vault.reserve(self._owner, message.size_bytes)
        except MemoryShortError as error:
            await self._refuse(str(error))
            return
        self._memory = memory
        fds = [memory.regions[index].fd for index in sorted(memory.regions)]
        answer = messages.Reserved(len(fds), memory.table.slot_bytes)
        await self._connection.send(answer, fds)

    async def _begin(self, message: messages.Begin) -> None:
        job = self._job
        if self._over() or self._memory is None:
            await self._connection.send(
                messages.Skip(self._over_reason() if self._over() else "reserve slots first")
            )
            return
        # Only a newer recoverable step frees slots. While the controller is away none comes, and
        # training must not wait for it at every step.
        starved_by, reason = self._starved
        starved = starved_by == job.vault.recoverable
        wait_s = 0.0 if starved else job.desk.settings.begin_wait_s
        patience = asyncio.get_running_loop().time() + wait_s
        answer = await job.vault.begin(self._memory, message.step, wait_s)
        if isinstance(answer, Grant):
            await self._connection.send(messages.Slot(answer.slot, answer.epoch))
            return
        if starved:
            answer = reason
        elif asyncio.get_running_loop().time() >= patience:
            self._starved = (job.vault.recoverable, answer)
        job.progress.skipped(self._owner.rank)
        await self._connection.send(messages.Skip(answer))

    async def _commit(self, message: messages.Commit) -> None:
        if self._over() or self._memory is None:
            await self._refuse(self._over_reason() if self._over() else "reserve slots first")
            return
        problem = self._job.vault.commit(self._memory, message)
        if problem:
            await self._refuse(problem)
            return
        await self._connection.send(messages.Committed(message.step))

    def _progress(self, message: messages.Progress) -> None:
        job = self._job
        if self._over():
            return
        at_boot_ns = min(message.at_boot_ns, job.desk.boot_ns())
        progress = messages.Progress(message.step, at_boot_ns, message.stall_ns)
        job.progress.add(self._owner.rank, progress)
