"""Autonomous restart: a job whose ranks are all here goes on while the controller is away.

The agent stops the generation and begins the next one under a number that the plan left to it. Any
word of the controller about the generation ends that at every moment before the new one has begun.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from everstep_agent.jobs.autonomous_restart_policy import (
    Autonomy,
    Decision,
    Failure,
    Remedy,
    decide,
    newest_whole,
    next_plan,
)
from everstep_agent.jobs.context import JobContext
from everstep_agent.jobs.facts import JobFacts
from everstep_agent.jobs.records import restarted_record
from everstep_agent.jobs.report import copies_of
from everstep_agent.vault.job_vault import JobVault
from everstep_common import trainer_messages as messages
from everstep_proto.generated import fleet_pb2

logger = logging.getLogger(__name__)
# Two looks are never nearer than that.
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class JobControl:
    """What is done with the job: tell its launcher, if one is there; stop; begin a generation."""

    tell: Callable[[object], bool]
    stop: Callable[[int, str], None]
    begin: Callable[[fleet_pb2.StartGeneration, str], None]


class AutonomousRestart:
    """What one job does without the controller. Event loop only."""

    def __init__(
        self, facts: JobFacts, vault: JobVault, context: JobContext, control: JobControl
    ) -> None:
        self._facts = facts
        self._vault = vault
        self._context = context
        self._control = control
        self._watch: asyncio.Task[None] | None = None
        self._freeing: asyncio.Handle | None = None

    # --- what happens ----------------------------------------------------------------------------

    def failed(self, message: messages.Exited, step: int | None) -> None:
        """A rank died: if the controller is or goes away now, it is the agent's affair."""
        facts = self._facts
        failure = Failure(
            generation=message.generation,
            rank=message.rank,
            exit_code=message.exit_code,
            signal=message.signal,
            kind=message.kind,
            exception=message.exception[:500],
            at_boot_ns=message.at_boot_ns,
            step=step,
        )
        self._keep(facts.own.with_failure(failure))
        if self._watch is None or self._watch.done():
            self._watch = self._context.spawn(self._wait(), f"alone {facts.job}")

    def spoiled(self, generation: int) -> None:
        """A rank called its state bad: where to go back to, the controller knows."""
        self._keep(replace(self._facts.own, spoiled=generation))

    def left(self) -> None:
        """The user ends the job here: whatever dies now is to die."""
        generation = self._facts.plan.generation
        self._keep(replace(self._facts.own, left=generation, stopping=0))

    def overruled(self, generation: int) -> None:
        """The controller decides about a generation."""
        if 0 < self._facts.own.stopping <= generation:
            self._keep(replace(self._facts.own, stopping=0))

    def back(self) -> None:
        """The launcher is here again: it may have missed a word."""
        own = self._facts.own
        if own.stopping > self._facts.stopped:
            self._control.tell(messages.Stop(own.stopping, 0.0, "stopped while it was away"))

    def close(self) -> None:
        """Forget the job."""
        if self._freeing is not None:
            self._freeing.cancel()
        if self._watch is not None:
            self._watch.cancel()

    # --- what is done ----------------------------------------------------------------------------

    async def _wait(self) -> None:
        """Wait until the controller acts, or has been away for long enough."""
        generation = self._facts.plan.generation
        grace_s = self._context.settings.controller_grace_s
        while self._open(generation):
            away_s = self._context.away_s()
            if away_s >= grace_s:
                self._act()
                return
            await asyncio.sleep(max(_LOOK_S, grace_s - away_s))

    def _open(self, generation: int) -> bool:
        facts = self._facts
        ordered = max(facts.stop_ordered, facts.stopped, facts.own.stopping, facts.own.left)
        return facts.plan.generation == generation > ordered and not facts.ended

    def _act(self) -> None:
        facts, decision = self._facts, self._decide()
        if decision is None:
            return
        self._say(decision.sentence)
        if decision.remedy is Remedy.HOLD:
            return
        generation, now_ns = facts.plan.generation, self._context.boot_ns()
        if decision.remedy is Remedy.RESTART:
            self._keep(replace(facts.own, stopping=generation, decided_boot_ns=now_ns))
        self._control.stop(generation, decision.sentence)

    def _decide(self) -> Decision | None:
        facts = self._facts
        return decide(facts.plan, facts.own, restorable=self._can_restore())

    def go_on(self, generation: int) -> bool:
        """Begin the agent's own next generation, if one is due after this one, which is stopped."""
        facts = self._facts
        plan, own = facts.plan, facts.own
        if own.stopping != generation or plan.generation != generation:
            return False
        self.overruled(generation)
        decision = self._decide()
        mine = facts.stop_ordered < generation and not facts.ended and self._context.away_s() > 0
        if decision is None or not mine:
            return False
        if decision.remedy is not Remedy.RESTART:
            self._say(decision.sentence)
            return False
        copies = newest_whole(copies_of(self._vault), plan)
        following = next_plan(plan, copies, self._context.site.node, facts.free_port)
        after = f"after step {following.restore_step}" if following.restore else "from the start"
        reason = f"generation {following.generation} (in place) {after}: {decision.sentence}"
        decided_ns = own.decided_boot_ns
        # Told before anything of the new generation, so that the controller adopts it in order.
        now_ns = self._context.boot_ns()
        self._context.outlet.record(
            restarted_record(following, plan.generation, reason, (decided_ns, now_ns))
        )
        self._control.begin(following, reason)
        return True

    def _can_restore(self) -> bool:
        """Return whether going on loses nothing that somebody else may hold."""
        plan, recoverable = self._facts.plan, self._vault.recoverable
        if newest_whole(copies_of(self._vault), plan):
            return True
        had = recoverable.generation == plan.generation and recoverable.step is not None
        return not had and (plan.restore or self._facts.storage is None)

    def free_soon(self) -> None:
        """Free in the controller's place, in a moment, what a newer whole step makes needless.

        Otherwise all slots would be taken a few steps after it went, and the newest step that
        could be restored would stay the one from then.
        """
        if self._freeing is None and self._context.away_s() > 0:
            self._freeing = asyncio.get_running_loop().call_soon(self._free)

    def _free(self) -> None:
        self._freeing = None
        plan, own = self._facts.plan, self._facts.own
        allowed = plan.own_restarts or own.planned != plan.generation
        if not allowed or plan.node_count != 1 or self._context.away_s() <= 0:
            return
        whole = newest_whole(copies_of(self._vault), plan)
        known = self._vault.recoverable
        same = known.generation == plan.generation
        before = known.step if same and known.step is not None else -1
        if whole and whole[0].step > before and known.generation <= plan.generation:
            dead = known.dead_steps if same else frozenset[int]()
            step = whole[0].step
            mine = replace(known, generation=plan.generation, step=step, dead_steps=dead)
            self._vault.apply_directive(mine, self._vault.target)

    def _say(self, sentence: str) -> None:
        logger.warning("job %s: %s", self._facts.job, sentence)
        self._control.tell(messages.Notice(sentence))

    def _keep(self, own: Autonomy) -> None:
        if own != self._facts.own:
            self._facts.own = own
            self._context.store.save(self._facts)
