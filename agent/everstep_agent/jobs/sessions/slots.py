"""Slot session: what a training process asks of its slots: memory, a slot for a step, a commit."""

import asyncio
import math
from contextlib import suppress
from dataclasses import replace

from everstep_agent.jobs.job.node_job import NodeJob
from everstep_agent.jobs.sessions.admission import count_memory_refusal
from everstep_agent.jobs.sessions.answers import AnswerQueue
from everstep_agent.vault.job_vault import SlotWait
from everstep_agent.vault.memory.allocator import MemoryShortError
from everstep_agent.vault.slot_allocation import SlotOwner
from everstep_agent.vault.snapshots.holdings import RankMemory
from everstep_agent.vault.snapshots.slot_questions import SlotOrders, SlotQuestions
from everstep_agent.vault.snapshots.slots import Grant
from everstep_common import rank_messages


class SlotSession:
    """The slots of one attached rank, until its connection ends."""

    def __init__(self, answers: AnswerQueue, job: NodeJob, owner: SlotOwner) -> None:
        self._answers = answers
        self._job = job
        self._owner = owner
        self._memory: RankMemory | None = None
        # The shards of the last copy; the next copy usually has the same.
        self._entries: tuple[rank_messages.Entry, ...] = ()
        self._questions = SlotQuestions(owner.generation)

    def end(self) -> None:
        """The connection is gone: what was begun and not committed never was."""
        if self._memory is not None:
            self._end_writing(self._memory)
            self._job.vault.change_signal.notify()

    def _end_writing(self, memory: RankMemory) -> None:
        memory.end_writing(self._job.vault.context.region_store)

    def _orders(self) -> SlotOrders:
        vault = self._job.vault
        return SlotOrders(vault.cadence, vault.step_hold, vault.recoverable)

    def refusal(self) -> str:
        """Return why nothing is taken from this process any more; empty while it is."""
        facts, generation = self._job.facts, self._owner.generation
        if generation == facts.plan.generation and facts.active:
            return ""
        return f"generation {generation} is over; this process should exit"

    async def reserve(self, message: rank_messages.Reserve) -> None:
        """Answer with memory."""
        problem = self.refusal()
        if not problem and message.size_bytes <= 0:
            problem = f"a slot of {message.size_bytes} bytes; reserve at least one"
        if problem:
            await self._answers.send(rank_messages.Refused(problem))
            return
        if self._memory is not None:
            self._end_writing(self._memory)  # who asks for slots copies into none
        try:
            memory = await self._job.vault.reserve_slots(self._owner, message.size_bytes)
        except MemoryShortError as error:
            if self._memory is not None and self._memory.retired:
                self._memory = None
            count_memory_refusal(self._job.context, self._job.vault.uid, str(error))
            await self._answers.send(rank_messages.Refused(str(error)))
            return
        self._memory = memory
        fds = [memory.regions[index].lend_writable() for index in sorted(memory.regions)]
        answer = rank_messages.Reserved(len(fds), memory.table.slot_bytes)
        await self._answers.send(answer, fds)

    async def begin(self, message: rank_messages.Begin) -> None:
        """Answer with a slot, with the next step that is wanted, or with why there is none."""
        memory, problem = self._memory, self.refusal()
        if memory is not None:
            self._end_writing(memory)  # who asks for a slot copies into none
        if memory is None or problem:
            await self._answers.send(rank_messages.Skip(problem or "reserve slots first"))
            return
        if await self._held(memory, message):
            gone = f"generation {self._owner.generation} was stopped, as planned"
            await self._answers.send(rank_messages.Skip(gone))
            return
        now_s = asyncio.get_running_loop().time()
        again = self._questions.step_to_ask_at(self._orders(), message.step, now_s)
        if again != message.step:
            await self._answers.send(rank_messages.Unplanned(again))
            return
        answer = await self._slot(memory, message)
        if isinstance(answer, Grant):
            await self._answers.send(rank_messages.Slot(answer.slot, answer.epoch))
            return
        vault, job = self._job.vault, self._job
        if not memory.table.has_step(message.step):
            vault.leave_out(memory, message.step)
            if job.context.away_s() > 0 and job.facts.plan.node_count > 1:
                vault.thin_out(message.step)
        job.context.skips.skipped(job.facts.job, job.context.boot_ns())
        await self._answers.send(rank_messages.Skip(answer))

    async def _held(self, memory: RankMemory, message: rank_messages.Begin) -> bool:
        """Wait while a restart is planned before this step; return whether it has come."""
        if not self._is_held(message.step):
            return False
        vault = self._job.vault
        with suppress(TimeoutError):
            async with asyncio.timeout(self._restart_wait_s(message)):
                while not memory.retired and self._is_held(message.step):
                    await vault.change_signal.wait()
        self._questions.record_hold_ended(self._orders(), message.step)
        return memory.retired

    def _is_held(self, step: int) -> bool:
        return self._questions.is_held(self._orders(), step)

    def _wait_s(self, message: rank_messages.Begin) -> float:
        settings = self._job.context.settings
        return patience(message.wait_s, settings.slot_wait_s, settings.slot_wait_max_s)

    def _restart_wait_s(self, message: rank_messages.Begin) -> float:
        """Return how long to wait around a planned restart, also for who never waits for a slot."""
        return max(self._wait_s(message), self._job.context.settings.slot_wait_s)

    async def commit(self, message: rank_messages.Commit) -> None:
        """Take over a copy."""
        problem: str | None = self.refusal() or self._withdrawn(message)
        if not problem:
            problem = await self._take_over(message)
        if problem:
            await self._answers.send(rank_messages.Refused(problem))
            return
        self._job.context.skips.saved(self._job.facts.job)
        ahead = self._grant_ahead(message.step) if message.ahead else None
        await self._answers.send(ahead or rank_messages.Committed(message.step))

    def _withdrawn(self, message: rank_messages.Commit) -> str:
        """Return why what was granted ahead counts for nothing; "" for what may be committed.

        The commit tells that the process has done with the slot, and so does the next question.
        """
        if not message.ahead or not self._is_held(message.step):
            return ""
        if self._memory is not None:
            self._end_writing(self._memory)
        return f"its generation ends before step {message.step} as planned; its slot was withdrawn"

    def _grant_ahead(self, step: int) -> rank_messages.CommittedAhead | None:
        """Return the slot of the next step that is snapshotted, if it is free and near enough."""
        memory, vault = self._memory, self._job.vault
        now_s = asyncio.get_running_loop().time()
        wanted = self._questions.step_ahead(self._orders(), step, now_s)
        if memory is None or wanted is None:
            return None
        grant = vault.grant_ahead(memory, wanted)
        if grant is None:
            return None
        return rank_messages.CommittedAhead(step, wanted, wanted, grant.slot, grant.epoch)

    async def _take_over(self, message: rank_messages.Commit) -> str | None:
        if self._memory is None:
            return "reserve slots first"
        if message.as_before:
            # The same object for all these steps, so that checks of it are not repeated.
            message = replace(message, entries=self._entries)
        self._job.record.note_snapshot()
        problem = await self._job.vault.commit(self._memory, message)
        if not problem:
            self._entries = message.entries
        return problem

    async def _slot(self, memory: RankMemory, message: rank_messages.Begin) -> Grant | str:
        """Return a slot, after a wait if need be, or why there is none."""
        vault, clock = self._job.vault, asyncio.get_running_loop().time
        questions, step = self._questions, message.step
        last = questions.is_last_step(self._orders(), step)
        starved = questions.vain_reason(self._orders(), step)
        wait_s = 0.0 if starved else self._longest_wait_s(memory, message, last=last)
        ends = clock() + wait_s
        wait = SlotWait(wait_s, lambda: "" if last else self._away())
        answer = await vault.acquire_slot(memory, step, wait)
        if isinstance(answer, str) and starved:
            return starved
        if isinstance(answer, str) and wait_s and clock() >= ends:
            questions.record_vain_wait(self._orders(), step, answer)
        return answer

    def _longest_wait_s(
        self, memory: RankMemory, message: rank_messages.Begin, *, last: bool
    ) -> float:
        # Only a newer recoverable step frees slots for good. While the controller is away, or the
        # agent of another member, none comes, and training must not wait for it, whatever bound
        # the trainer has set.
        if last:
            return self._restart_wait_s(message)
        if self._away():
            return 0.0
        wait_s = self._wait_s(message)
        return memory.turnover.bound_wait_s(wait_s) if message.wait_s is None else wait_s

    def _away(self) -> str:
        """Return what keeps steps from becoming recoverable, so that no slot gets free; or ""."""
        context = self._job.context
        if context.away_s() > 0:
            return "the controller is away"
        if context.cut_off():
            return "neither the controller nor a peer is heard"
        return "another member's agent is away" if self._job.vault.member_away else ""


def patience(asked_s: float | None, usual_s: float, most_s: float) -> float:
    """Return how long to wait for a free slot; what is no time at all is no wait."""
    if asked_s is None:
        return usual_s
    return 0.0 if math.isnan(asked_s) else min(max(0.0, asked_s), most_s)
