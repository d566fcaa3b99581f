"""Trainer session: one training process, fenced by its generation: restore, slots, progress."""

import logging
import os
from collections.abc import Sequence
from dataclasses import replace

from everstep_agent.concurrency.time_slices import run_in_slices
from everstep_agent.ipc.connection import Connection
from everstep_agent.ipc.processes import identify
from everstep_agent.jobs.job.node_job import NodeJob
from everstep_agent.jobs.sessions.answers import AnswerQueue
from everstep_agent.jobs.sessions.slots import SlotSession
from everstep_agent.jobs.state.plan import Plan, restore_plan_of
from everstep_agent.jobs.state.records import skipped_message
from everstep_agent.vault.restore.restorer import RestoredPart
from everstep_agent.vault.restore.source_search import RestoreError
from everstep_agent.vault.slot_allocation import SlotOwner
from everstep_agent.vault.snapshots.manifest import by_name_in_parts
from everstep_common import rank_messages
from everstep_common.frames import FDS_MAX, FrameError
from everstep_common.rank_messages import Restore, RestoredCopies, RestoredCopy
from everstep_common.reports import Phase, RankReport, RollbackAsked
from everstep_proto.reports import record_of

logger = logging.getLogger(__name__)

# Shards in one part of an answer, a message of some megabytes: a shard takes 0.3 to 1 kB.
_PAGE_SHARDS = 8192


class TrainerSession:
    """One training process, from its Attach to the end of its connection."""

    def __init__(self, connection: Connection, job: NodeJob, attach: rank_messages.Attach) -> None:
        self._connection = connection
        self._job = job
        self._owner = SlotOwner(attach.generation, attach.rank, connection.peer.pid)
        self._answers = AnswerQueue(connection)
        self._slots = SlotSession(self._answers, job, self._owner)
        # The shards that a rank is told of, for one that asks for them part by part.
        self._described: tuple[rank_messages.Entry, ...] = ()
        self._transfer = RestoreTransfer(self._answers)

    async def run(self) -> None:
        """Serve until the connection ends. Raises OSError then."""
        job, rank = self._job, self._owner.rank
        process = identify(self._owner.pid)
        if process is not None:
            job.processes.watch(process)
        plan = job.facts.plan
        step = plan.restore_step
        await self._connection.send(rank_messages.Attached(job.context.vault_context.node, step))
        job.processes.reach_phase(Phase.ATTACHED, rank, job.context.boot_ns())
        try:
            while True:
                await self._serve_next()
        except OSError:
            # The last answer is completed although nobody listens: nothing is left half done.
            await self._answers.finish()
            raise
        finally:
            await self._answers.cancel()
            self._transfer.end()
            self._slots.end()
            job.standing.end_pause(rank)
            if not self._slots.refusal():
                job.progress.end_pause(rank)

    async def _serve_next(self) -> None:
        """Serve one message, which may be long, and keep nothing of it."""
        message = await self._connection.receive(rank_messages.FROM_TRAINER)
        if self._record(message):
            self._connection.take_lease().release()
        else:
            await self._answers.begin(self._answer(message))

    def _record(self, message: object) -> bool:
        """Take at once what is not answered: by its progress a rank is known to be alive."""
        match message:
            case rank_messages.Progress():
                self._progress(message)
            case rank_messages.Paused():
                self._pause(message)
            case rank_messages.Await():
                self._answers.resume()
            case rank_messages.Ready():
                self._ready(message)
            case RankReport():
                self._report(message)
            case _:
                return False
        return True

    async def _answer(self, message: object) -> None:
        match message:
            case rank_messages.Describe() | rank_messages.Restore():
                await self._recover(message)
            case rank_messages.Reserve():
                await self._slots.reserve(message)
            case rank_messages.Begin():
                await self._slots.begin(message)
            case rank_messages.Commit():
                await self._slots.commit(message)
            case rank_messages.AskSkipped():
                await self._answers.send(skipped_message(self._job.facts.plan))
            case _:
                await self._refuse("this process is attached already; attach once")

    async def _refuse(self, reason: str) -> None:
        await self._answers.send(rank_messages.Refused(reason))

    async def _recover(self, message: rank_messages.Describe | rank_messages.Restore) -> None:
        plan = self._job.facts.plan
        if over := self._slots.refusal():
            self._transfer.end()
            await self._answers.send(rank_messages.RestoreFailed(over))
            return
        if plan.restore_step is None:
            await self._answers.send(rank_messages.NothingToRestore())
            return
        try:
            if isinstance(message, rank_messages.Restore):
                await self._restore(plan, plan.restore_step, message)
            else:
                await self._describe(plan, plan.restore_step, message)
        except RestoreError as error:
            await self._answers.send(rank_messages.RestoreFailed(str(error)))

    async def _describe(self, plan: Plan, step: int, message: rank_messages.Describe) -> None:
        rank = None if message.everyone else self._owner.rank
        restorer, begin = self._job.restorer, message.begin
        if not begin or not self._described:
            # Sorted: the rank may reconnect and ask for the next part, which must follow this one.
            shards = await restorer.describe(restore_plan_of(plan), rank)
            self._described = await run_in_slices(by_name_in_parts(shards))
        page = self._described[begin : begin + _PAGE_SHARDS]
        left = max(0, len(self._described) - begin - len(page))
        if not left:
            self._described = ()
        await self._send(rank_messages.DescribedPart(step, page, left))

    async def _send(self, described: rank_messages.DescribedPart) -> None:
        try:
            await self._answers.send(described)
        except FrameError as error:
            reason = f"the list of {len(described.entries)} shards does not fit one message"
            raise RestoreError(f"{reason}: upgrade everstep in the training image") from error

    async def _restore(self, plan: Plan, step: int, message: rank_messages.Restore) -> None:
        if not self._transfer.goes_on(message):
            parts = await self._job.restorer.restore(
                restore_plan_of(plan), message.names, self._owner.rank
            )
            self._transfer.take_over(message, step, parts)
            logger.info(
                "job %s: generation %d: rank %d restored step %d from %s",
                self._job.facts.job,
                self._owner.generation,
                self._owner.rank,
                step,
                ", ".join(sorted({part.origin for part in parts})),
            )
        await self._transfer.give()

    def _ready(self, message: rank_messages.Ready) -> None:
        if not self._slots.refusal():
            rank = self._owner.rank
            self._job.processes.reach_phase(Phase.RESTORED, rank, message.at_boot_ns)

    def _report(self, message: RankReport) -> None:
        job, owner = self._job, self._owner
        if self._slots.refusal():
            return
        # Steps that were completed before are reported first: the controller counts from them.
        job.progress.flush()
        at_boot_ns = min(message.at_boot_ns, job.context.boot_ns())
        report = replace(
            message, generation=owner.generation, rank=owner.rank, at_boot_ns=at_boot_ns
        )
        job.context.outlet.record(record_of(report, job.facts.reported_as))
        if isinstance(report, RollbackAsked):
            job.record.mark_spoiled(owner.generation)

    def _pause(self, message: rank_messages.Paused) -> None:
        job, rank = self._job, self._owner.rank
        if self._slots.refusal():
            return
        at_boot_ns = min(message.at_boot_ns, job.context.boot_ns())
        job.progress.add_pause(rank, replace(message, at_boot_ns=at_boot_ns))
        job.standing.add_pause(rank, message.name)

    def _progress(self, message: rank_messages.Progress) -> None:
        job = self._job
        if self._slots.refusal():
            return
        at_boot_ns = min(message.at_boot_ns, job.context.boot_ns())
        job.progress.add_step(self._owner.rank, replace(message, at_boot_ns=at_boot_ns))
        job.standing.add_step(self._owner.rank, message.step, at_boot_ns)
        job.freshness.record_step(message.step)


class RestoreTransfer:
    """Copies that one connection is being given: kept until the last of it has been sent.

    The rank asks for each message: descriptors go only to one that reads its answers.
    """

    def __init__(self, answers: AnswerQueue) -> None:
        self._answers = answers
        self._asked = Restore(())
        self._step = 0
        self._parts: Sequence[RestoredPart] = ()
        self._given = 0

    def goes_on(self, asked: Restore) -> bool:
        """Return whether a question is for what follows the message before."""
        return 0 < self._given == asked.begin and asked.names == self._asked.names

    def take_over(self, asked: Restore, step: int, parts: Sequence[RestoredPart]) -> None:
        """Own what is to be given, in place of what was not asked for to its end."""
        self.end()
        self._asked, self._step, self._parts = asked, step, parts

    async def give(self) -> None:
        """Send what comes next. Raises OSError."""
        begin, end = self._given, self._given + FDS_MAX
        copies, left = _copies(self._parts[begin:end]), max(0, len(self._parts) - end)
        message = RestoredCopies(self._step, copies, begin, left)
        await self._send(message, self._parts[begin:end])
        self._given = end
        if not left:
            self.end()

    async def _send(self, message: RestoredCopies, parts: Sequence[RestoredPart]) -> None:
        fds: list[int] = []
        try:
            for part in parts:
                fds.append(part.region.open_read_only())
            await self._answers.send(message, fds)
        finally:
            for fd in fds:
                os.close(fd)

    def end(self) -> None:
        """Give back what is left of it."""
        parts, self._parts, self._given = self._parts, (), 0
        for part in parts:
            part.region.release()


def _copies(parts: Sequence[RestoredPart]) -> tuple[RestoredCopy, ...]:
    return tuple(RestoredCopy(part.entries, part.region.size_bytes) for part in parts)
