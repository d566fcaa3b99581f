"""A training process's connection: restore, slots, commits, progress; fenced by its generation."""

import logging
from dataclasses import replace

from everstep_agent.jobs.answering import Answering
from everstep_agent.jobs.connection import Connection
from everstep_agent.jobs.handing_over import HandingOver
from everstep_agent.jobs.job import NodeJob
from everstep_agent.jobs.processes import identify
from everstep_agent.jobs.ranges import number_problem
from everstep_agent.jobs.records import rollback_record, skipped
from everstep_agent.jobs.slot_session import SlotSession
from everstep_agent.slices import slowly
from everstep_agent.vault.manifests import by_name_in_parts
from everstep_agent.vault.reserve import Owner
from everstep_agent.vault.restoring.search import RestoreError
from everstep_common import trainer_messages as messages
from everstep_common.frames import FrameError
from everstep_common.job_limits import range_problem
from everstep_common.reports import Phase
from everstep_proto.generated import fleet_pb2

logger = logging.getLogger(__name__)

# A message of some megabytes: a shard takes 0.3 to 1 kB.
_PAGE_SHARDS = 8192


class TrainerSession:
    """One training process, from its Attach to the end of its connection."""

    def __init__(self, connection: Connection, job: NodeJob, attach: messages.Attach) -> None:
        self._connection = connection
        self._job = job
        self._owner = Owner(attach.generation, attach.rank, connection.peer.pid)
        self._slots = SlotSession(connection, job, self._owner)
        self._answering = Answering(connection)
        # What a rank that asks for a part after the other is being told.
        self._described: tuple[messages.Entry, ...] = ()
        self._handing_over = HandingOver(connection)

    async def run(self) -> None:
        """Serve until the connection ends. Raises OSError then."""
        job, rank = self._job, self._owner.rank
        process = identify(self._owner.pid)
        if process is not None:
            job.processes.watch(process)
        plan = job.facts.plan
        step = plan.restore_step if plan.restore else None
        await self._connection.send(messages.Attached(job.desk.site.node, step))
        job.processes.reach(Phase.ATTACHED, rank, job.desk.boot_ns())
        try:
            while True:
                await self._serve_next()
        except OSError:
            # What was asked last ends as if somebody still listened: nothing is left half done.
            await self._answering.over()
            raise
        finally:
            await self._answering.give_up()
            self._handing_over.end()
            self._slots.end()

    async def _serve_next(self) -> None:
        """Serve one message, which may be long, and keep nothing of it."""
        message = await self._connection.receive(messages.FROM_TRAINER)
        if problem := number_problem(message):
            raise FrameError(problem)
        if self._hear(message):
            self._connection.take_turn().end()
        else:
            await self._answering.begin(self._answer(message))

    def _hear(self, message: object) -> bool:
        """Take at once what is not answered: by its progress a rank is known to be alive."""
        match message:
            case messages.Progress():
                self._progress(message)
            case messages.Ready():
                self._ready(message)
            case messages.Rollback():
                self._rollback(message)
            case _:
                return False
        return True

    async def _answer(self, message: object) -> None:
        match message:
            case messages.Describe() | messages.Restore():
                await self._recover(message)
            case messages.Reserve():
                await self._slots.reserve(message)
            case messages.Begin():
                await self._slots.begin(message)
            case messages.Commit():
                await self._slots.commit(message)
            case messages.AskSkipped():
                await self._connection.send(skipped(self._job.facts.plan))
            case _:
                await self._refuse("this process is attached already; attach once")

    async def _refuse(self, reason: str) -> None:
        await self._connection.send(messages.Refused(reason))

    async def _recover(self, message: messages.Describe | messages.Restore) -> None:
        plan = self._job.facts.plan
        if over := self._slots.over():
            self._handing_over.end()
            await self._connection.send(messages.RestoreFailed(over))
            return
        if not plan.restore:
            await self._connection.send(messages.NothingToRestore())
            return
        try:
            if isinstance(message, messages.Restore):
                await self._restore(plan, message)
            else:
                await self._describe(plan, message)
        except RestoreError as error:
            await self._connection.send(messages.RestoreFailed(str(error)))

    async def _describe(self, plan: fleet_pb2.StartGeneration, message: messages.Describe) -> None:
        rank = None if message.everyone else self._owner.rank
        restorer, step, begin = self._job.restorer, plan.restore_step, message.begin
        if begin is None:
            await self._send(messages.Described(step, await restorer.describe(plan, rank)))
            return
        if not begin or not self._described:
            # Another connection may go on where this one ends: in an order that is always the same.
            shards = await restorer.describe(plan, rank)
            self._described = await slowly(by_name_in_parts(shards))
        page = self._described[begin : begin + _PAGE_SHARDS]
        left = max(0, len(self._described) - begin - len(page))
        if not left:
            self._described = ()
        await self._send(messages.DescribedPart(step, page, left))

    async def _send(self, described: messages.Described | messages.DescribedPart) -> None:
        try:
            await self._connection.send(described)
        except FrameError as error:
            reason = f"the list of {len(described.entries)} shards does not fit one message"
            raise RestoreError(f"{reason}: upgrade everstep in the training image") from error

    async def _restore(self, plan: fleet_pb2.StartGeneration, message: messages.Restore) -> None:
        if not self._handing_over.goes_on(message):
            parts = await self._job.restorer.restore(plan, message.names, self._owner.rank)
            self._handing_over.take_over(message, plan.restore_step, parts)
            logger.info(
                "job %s: generation %d: rank %d restored step %d from %s",
                self._job.facts.job,
                self._owner.generation,
                self._owner.rank,
                plan.restore_step,
                ", ".join(sorted({part.origin for part in parts})),
            )
        await self._handing_over.give()

    def _ready(self, message: messages.Ready) -> None:
        if not self._slots.over():
            rank = self._owner.rank
            self._job.processes.reach(Phase.RESTORED, rank, message.at_boot_ns)

    def _rollback(self, message: messages.Rollback) -> None:
        if message.skip is not None and (problem := _skip_problem(message.skip)):
            raise FrameError(problem)
        job, owner = self._job, self._owner
        if self._slots.over():
            return
        # The steps before it come first: the controller counts from them.
        job.progress.close()
        at_boot_ns = min(message.at_boot_ns, job.desk.boot_ns())
        told = replace(message, at_boot_ns=at_boot_ns)
        job.desk.outlet.record(rollback_record(job.facts, owner.generation, owner.rank, told))
        job.alone.spoiled(owner.generation)

    def _progress(self, message: messages.Progress) -> None:
        job = self._job
        if self._slots.over():
            return
        at_boot_ns = min(message.at_boot_ns, job.desk.boot_ns())
        progress = messages.Progress(message.step, at_boot_ns, message.stall_ns)
        job.progress.add(self._owner.rank, progress)
        job.freshness.reached(progress.step)


def _skip_problem(skip: messages.DataRange) -> str | None:
    return number_problem(skip) or range_problem(skip.first, skip.last)
