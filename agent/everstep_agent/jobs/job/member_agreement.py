"""Member agreement: a job's members free memory among themselves while no controller is there.

One that says that it is halted counts as none: it frees nothing either. Otherwise all slots would
be full a few steps after it went, and the newest step that could be restored would stay the one
from then. What may be freed is decided in `member_words`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from everstep_agent.jobs.job.context import JobContext
from everstep_agent.jobs.state.job_record import JobRecord
from everstep_agent.jobs.state.lifecycle import JobState
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.replication.replicator import Replicator
from everstep_agent.vault.snapshots.copies import CopyKey, Recoverable, ReplicaTarget
from everstep_agent.vault.snapshots.member_words import (
    HeldSteps,
    MemberWords,
    StepWord,
    combine,
    forget,
    word_of_rank,
)
from everstep_agent.vault.snapshots.slots import SlotState, SlotTable
from everstep_agent.vault.transfer.client import tell_steps
from everstep_agent.vault.transfer.messages import AllSteps, Refusal, TellSteps

logger = logging.getLogger(__name__)
# How often a member tells its word; it takes so long for each stage of the tree, up and down.
_TELL_EVERY_S = 0.5


class MemberAgreement:
    """The words of one job's members, as this node hears and tells them. Event loop only."""

    def __init__(
        self,
        record: JobRecord,
        vault: JobVault,
        replicator: Replicator,
        context: JobContext,
        on_recoverable: Callable[[Recoverable], None],
    ) -> None:
        """``on_recoverable`` hears which step is recoverable by the members' words."""
        self._record = record
        self._on_recoverable = on_recoverable
        self._vault = vault
        self._replicator = replicator
        self._context = context
        self._words = MemberWords(0, 0, 0)
        # The generation that ran before this agent process did, and the first steps that were seen
        # of its ranks: those before them may have been lost with the process before.
        self._found = record.plan.generation
        self._first_steps: dict[int, int] = {}
        self._concluding: asyncio.Handle | None = None
        self._telling: asyncio.Task[None] | None = None
        self._trouble = ""
        vault.hear_member = self.hear

    def free_soon(self) -> None:
        """Free in the controller's place, in a moment, what a newer step of all makes needless."""
        if self._refusal():
            return
        if self._concluding is None:
            self._concluding = asyncio.get_running_loop().call_soon(self._conclude_now)
        if self._listener is not None and (self._telling is None or self._telling.done()):
            telling = self._tell()
            try:
                name = f"steps of {self._record.facts.job}"
                self._telling = self._context.spawn(telling, name)
            except RuntimeError:  # the tasks of this node's jobs end
                telling.close()

    def hear(self, told: TellSteps) -> AllSteps | Refusal:
        """Take the word of a member, and of those below it; answer with the word of all."""
        if told.number == 0:
            return self._hear_only_member(told.word)
        reason = self._refusal()
        if not reason and not self._current_words().hear(told.number, told.word):
            reason = f"generation {self._record.plan.generation} runs here, where it tells nothing"
        if reason:
            return Refusal(f"{self._context.vault_context.node}: {reason}")
        self._conclude()
        return AllSteps(self._words.everyone)

    def _hear_only_member(self, word: StepWord) -> AllSteps | Refusal:
        """As the spare that keeps its replicas: free those that it has told to be needless."""
        vault, generation = self._vault, word.generation
        runs = self._record.plan.generation >= generation or generation <= vault.stopped
        if runs or generation != vault.fence or self._context.away_s() <= 0:
            name = self._context.vault_context.node
            return Refusal(f"{name}: no replicas of generation {generation} are kept here alone")
        self._free(word)
        return AllSteps(None)

    def end(self) -> None:
        """A controller has spoken: what members said before counts no more."""
        self._words = MemberWords(0, 0, 0)

    def close(self) -> None:
        """Forget the job."""
        if self._concluding is not None:
            self._concluding.cancel()
        if self._telling is not None:
            self._telling.cancel()

    def _refusal(self) -> str:
        """Return why nothing is freed here by the members' own words; "" while it is."""
        facts, plan, vault = self._record.facts, self._record.plan, self._vault
        if self._context.away_s() <= 0:
            return "the controller is here"
        if facts.state is not JobState.RUNNING or plan.generation <= vault.stopped:
            return f"generation {plan.generation} does not run here"
        newest = max(vault.fence, vault.recoverable.generation)
        return "" if plan.generation == newest else f"generation {newest} is known here"

    @property
    def _listener(self) -> ReplicaTarget | None:
        """Return the receivers of this member's word; for an only member, its replicas' keeper."""
        vault = self._vault
        return vault.target if self._record.plan.node_count == 1 else vault.collector

    def _current_words(self) -> MemberWords:
        plan = self._record.plan
        if self._words.generation != plan.generation:
            self._words = MemberWords(plan.generation, plan.node_rank, plan.node_count)
        return self._words

    # --- what is freed -----------------------------------------------------------------------

    def _conclude_now(self) -> None:
        self._concluding = None
        if not self._refusal():
            self._conclude()

    def _conclude(self) -> None:
        """Free what the newest word of all members allows."""
        words = self._current_words()
        words.conclude(self._own_word())
        if words.everyone is not None:
            self._free(words.everyone)

    def _free(self, everyone: StepWord) -> None:
        vault = self._vault
        keys = [manifest.key for manifest, _ in vault.holdings.manifests()]
        held = {key.step for key in keys if key.generation == everyone.generation}
        known = forget(vault.recoverable, everyone, held)
        if known != vault.recoverable:
            vault.apply_directive(known, vault.target)
            self._on_recoverable(known)

    def _own_word(self) -> StepWord:
        plan, known = self._record.plan, self._vault.recoverable
        word = self._word_of_ranks(alone=plan.node_count == 1)
        if known.generation != plan.generation or known.step is None:
            return word
        return replace(word, told=known.step)

    def _word_of_ranks(self, *, alone: bool) -> StepWord:
        """Return what the slots say; ``alone``: steps are safe without a replica."""
        plan = self._record.plan
        words = [self._word_of_rank(plan.generation, rank, alone=alone) for rank in plan.ranks]
        return combine(words)

    def _word_of_rank(self, generation: int, rank: int, *, alone: bool) -> StepWord:
        tables = list(self._tables(generation, rank))
        slots = [slot for table in tables for slot in table.slots]
        verified = [slot.step for slot in slots if slot.state is SlotState.VERIFIED]
        unverified = [slot.step for slot in slots if slot.state is SlotState.COMMITTED]
        stored = self._replicator.is_stored
        safe = [step for step in verified if alone or stored(CopyKey(generation, rank, step))]
        left_out = max((table.left_out for table in tables), default=-1)
        held = HeldSteps([slot.step for slot in slots], [*verified, *unverified], safe, left_out)
        known = held.committed or ([left_out] if left_out >= 0 else [])
        if generation != self._found or not known:
            return word_of_rank(generation, held)
        return word_of_rank(generation, held, self._first_steps.setdefault(rank, min(known)))

    def _tables(self, generation: int, rank: int) -> Iterator[SlotTable]:
        for memory in self._vault.holdings.ranks:
            if (memory.table.generation, memory.table.rank) == (generation, rank):
                yield memory.table

    # --- what is told ------------------------------------------------------------------------

    async def _tell(self) -> None:
        """Tell the word of this member and of those below it, until a controller is there."""
        while not self._refusal():
            listener, word = self._listener, self._word_to_tell()
            if listener is not None and word is not None:
                await self._tell_once(listener, word)
            await asyncio.sleep(_TELL_EVERY_S * self._context.jitter.uniform(0.75, 1.25))

    def _word_to_tell(self) -> StepWord | None:
        if self._record.plan.node_count > 1:
            return self._current_words().branch(self._own_word())
        # What is passed here may be the newest that the keeper has.
        word = self._word_of_ranks(alone=False)
        return replace(word, since=word.passed)

    async def _tell_once(self, listener: ReplicaTarget, word: StepWord) -> None:
        vault, context = self._vault, self._context.vault_context
        remote = context.remote_agent(
            listener.node, listener.address, vault.lineage, vault.transfer_key
        )
        told = TellSteps(self._record.plan.node_rank, word)
        try:
            everyone = await tell_steps(remote, told, context.outgoing.timeout_s)
        except OSError as error:
            self._log_trouble(f"{listener.node} hears no steps of members: {error or 'no answer'}")
            return
        self._log_trouble("")
        self._current_words().learn(everyone)
        self._conclude_now()

    def _log_trouble(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            logger.info("job %s: %s", self._record.facts.job, trouble)
        self._trouble = trouble
