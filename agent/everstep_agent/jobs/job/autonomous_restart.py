"""Autonomous restart: a job whose ranks are all here goes on while the controller is away.

One that says that it is halted is away as well. The agent stops the generation and begins the next
one under a number that the plan left to it. Any word of a controller that acts about the generation
ends that at every moment before the new one has begun.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from everstep_agent.jobs.job.context import JobContext
from everstep_agent.jobs.job.peers import LauncherLink
from everstep_agent.jobs.state.autonomous_restart_policy import (
    HeldCopy,
    Remedy,
    RestartDecision,
    decide_restart,
    newest_whole_step,
    plan_restart,
)
from everstep_agent.jobs.state.job_record import JobRecord
from everstep_agent.jobs.state.lifecycle import Effect, JobState
from everstep_agent.jobs.state.plan import Plan
from everstep_agent.jobs.state.records import restarted_record
from everstep_agent.vault.job_vault import JobVault
from everstep_common import launcher_messages
from everstep_common.reports import RankExited

logger = logging.getLogger(__name__)
# The shortest wait between two checks whether the controller is still away.
_RECHECK_S = 0.05


@dataclass(frozen=True, slots=True)
class JobControl:
    """Actions on a job: have its processes end; begin a generation."""

    stop_processes: Callable[[int, str], None]
    begin: Callable[[Plan, str], None]


class AutonomousRestart:
    """Decisions of one job without the controller, and their execution. Event loop only."""

    def __init__(
        self,
        record: JobRecord,
        link: LauncherLink,
        vault: JobVault,
        context: JobContext,
        control: JobControl,
    ) -> None:
        self._record = record
        self._link = link
        self._vault = vault
        self._context = context
        self._control = control
        self._watch: asyncio.Task[None] | None = None

    # --- what happens ----------------------------------------------------------------------------

    def record_failure(self, exit: RankExited) -> None:
        """A rank died: if the controller is or goes away now, it is the agent's affair."""
        self._record.count_failure(exit)
        if self._watch is None or self._watch.done():
            name = f"autonomous restart of {self._record.facts.job}"
            self._watch = self._context.spawn(self._await_absence(), name)

    def close(self) -> None:
        """Forget the job."""
        if self._watch is not None:
            self._watch.cancel()

    # --- what is done ----------------------------------------------------------------------------

    async def _await_absence(self) -> None:
        """Wait until the controller acts, or has been away for long enough."""
        generation = self._record.plan.generation
        grace_s = self._context.settings.controller_grace_s
        while self._may_decide(generation):
            away_s = self._context.away_s()
            if away_s >= grace_s:
                self._act()
                return
            await asyncio.sleep(max(_RECHECK_S, grace_s - away_s))

    def _may_decide(self, generation: int) -> bool:
        facts = self._record.facts
        runs = facts.state is JobState.RUNNING and facts.plan.generation == generation
        return runs and generation > max(facts.stops.ordered, facts.autonomy.left)

    def _act(self) -> None:
        decision = self._decide()
        if decision is None:
            return
        self._announce(decision.sentence)
        effects: tuple[Effect, ...] = ()
        if decision.remedy is Remedy.RESTART:
            effects = self._record.decide_restart(self._context.boot_ns())
        elif decision.remedy is Remedy.STOP:
            effects = self._record.decide_stop()
        if Effect.STOP_PROCESSES in effects:
            self._control.stop_processes(self._record.plan.generation, decision.sentence)

    def _decide(self) -> RestartDecision | None:
        facts = self._record.facts
        return decide_restart(facts.plan, facts.autonomy, restorable=self._can_restore())

    def restart_in_place(self) -> bool:
        """Begin the agent's own next generation, now that the newest one is stopped.

        Returns False where the controller is back, or the agent would decide otherwise by now.
        """
        facts, plan = self._record.facts, self._record.plan
        decision = self._decide()
        if decision is None or self._context.away_s() <= 0:
            return False
        if decision.remedy is not Remedy.RESTART:
            self._announce(decision.sentence)
            return False
        copies = newest_whole_step(self._held_copies(), plan)
        following = plan_restart(
            plan, copies, self._context.vault_context.node, facts.place.free_port
        )
        after = f"after step {following.restore_step}" if following.restores else "from the start"
        reason = f"generation {following.generation} (in place) {after}: {decision.sentence}"
        # Recorded before anything else of the new generation: the controller learns of it first.
        times_ns = facts.autonomy.decided_boot_ns, self._context.boot_ns()
        self._context.outlet.record(restarted_record(following, plan.generation, reason, times_ns))
        self._control.begin(following, reason)
        # A journal that is rebuilt knows of the generation by Hello alone.
        self._context.tell_halted()
        return True

    def _can_restore(self) -> bool:
        """Return whether going on loses nothing that somebody else may hold."""
        plan, recoverable = self._record.plan, self._vault.recoverable
        if newest_whole_step(self._held_copies(), plan):
            return True
        had = recoverable.generation == plan.generation and recoverable.step is not None
        return not had and (plan.restores or self._record.facts.storage.storage is None)

    def _held_copies(self) -> list[HeldCopy]:
        return [
            HeldCopy(
                generation=manifest.key.generation,
                rank=manifest.key.rank,
                step=manifest.key.step,
                root_hash=manifest.root_hash,
                size_bytes=manifest.size_bytes,
                layout=self._vault.layouts.layout_of(manifest).whole,
            )
            for manifest, _ in self._vault.holdings.manifests()
        ]

    def _announce(self, sentence: str) -> None:
        logger.warning("job %s: %s", self._record.facts.job, sentence)
        self._link.send(launcher_messages.Notice(sentence))
