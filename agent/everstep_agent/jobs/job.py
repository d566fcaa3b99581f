"""One job on this node: follows the controller's orders, and says what becomes of them."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from everstep_agent.concurrency.change_signal import ChangeSignal
from everstep_agent.jobs.autonomous_restart import AutonomousRestart, JobControl
from everstep_agent.jobs.autonomous_restart_policy import Autonomy
from everstep_agent.jobs.context import JobContext
from everstep_agent.jobs.facts import JobFacts
from everstep_agent.jobs.local_processes import LocalProcesses
from everstep_agent.jobs.peers import Launcher, Rank
from everstep_agent.jobs.progress import Freshness
from everstep_agent.jobs.progress_flow import ProgressFlow
from everstep_agent.jobs.records import start_messages
from everstep_agent.jobs.report import Reporter, vault_report
from everstep_agent.jobs.spare import LessonRelay, SpareDuty
from everstep_agent.jobs.storage_lifecycle import StorageLifecycle
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.replication.replicator import Replicator
from everstep_agent.vault.restore.restorer import Restorer
from everstep_agent.vault.snapshots.cadence import Cadence
from everstep_agent.vault.snapshots.copies import InitialCopies
from everstep_agent.vault.wire import (
    cadence_from_wire,
    carried_from_wire,
    hold_from_wire,
    recoverable_from_wire,
    target_from_wire,
)
from everstep_common import trainer_messages as messages
from everstep_proto.generated import fleet_pb2

logger = logging.getLogger(__name__)


class NodeJob:
    """What holds a job together here: facts, vault, launcher, processes."""

    def __init__(self, facts: JobFacts, context: JobContext) -> None:
        self.facts = facts
        self.context = context
        gather_s = context.settings.report_delay_s
        self.reporter = Reporter(context.outlet, gather_s, self._state_of_things)
        self.lessons = LessonRelay(facts, self.reporter.soon)
        self.vault = JobVault(context.site, facts.job, context.spawn, self._vault_changed)
        self.alone = AutonomousRestart(
            facts, self.vault, context, JobControl(self._tell, self._stop, self._begin)
        )
        self.restorer = Restorer(self.vault)
        self.waiting = SpareDuty(
            facts, self.vault, self.restorer, lambda: self.launcher is not None
        )
        self.processes = LocalProcesses(facts, context)
        # Sees to it that a generation ends, whatever its launcher does.
        self.insist: Callable[[int], None] = lambda _: None
        self.launcher: Launcher | None = None
        # What the launcher asked for when it joined.
        self.request: messages.Join | None = None
        # What it has waiting for the next generation.
        self.standbys: messages.Standbys | None = None
        self.progress = ProgressFlow(facts.plan, context.outlet, self._settled)
        self.freshness = Freshness()
        # Watches a launcher that is away.
        self.absence: asyncio.Task[None] | None = None
        # Why its launcher is not counted on any more, if so.
        self.reproach = ""
        # Process that is connected for a generation and rank.
        self.attached: dict[tuple[int, int], int] = {}
        self.detached = ChangeSignal()
        # Training processes that are connected, and of which job of this name they are.
        self.ranks: set[Rank] = set()
        self.life = 0
        self.storage = StorageLifecycle(facts, self.vault, context)
        self._adopt_facts()
        replicator = Replicator(self.vault, context.spawn, context.jitter)
        self.replication = context.spawn(replicator.run(), f"replicator {facts.job}")

    def _adopt_facts(self) -> None:
        facts, vault = self.facts, self.vault
        vault.uid, vault.transfer_key = facts.owner, facts.transfer_key
        # Settled again only when all that outlived the restart has been hashed: see settle().
        vault.stopped = facts.stopped
        plan = facts.plan
        if plan.generation:
            vault.begin_generation(plan.generation, self._carried(plan.sources))
            self._expect(plan)
        if facts.directive:
            self._direct(fleet_pb2.VaultDirective.FromString(facts.directive))

    def _carried(self, sources: Iterable[fleet_pb2.ShardSource]) -> InitialCopies:
        return carried_from_wire(sources, self.context.site.node)

    def _expect(self, plan: fleet_pb2.StartGeneration) -> None:
        self.processes.expect(plan)
        self.storage.files.world_size = self.reporter.ranks = plan.world_size
        self.progress.close()
        self.progress = ProgressFlow(plan, self.context.outlet, self._settled)

    def save(self) -> None:
        """Keep the facts over a restart of the agent."""
        self.context.store.save(self.facts)

    # --- what the controller orders ------------------------------------------------------------

    def start(self, plan: fleet_pb2.StartGeneration, reason: str) -> None:
        """Start a generation; one that is not newer than what was started or stopped is ignored."""
        facts = self.facts
        if (facts.ended or facts.past) and plan.generation <= facts.plan.generation:
            self.forget_past()
        if plan.generation <= max(facts.plan.generation, facts.stopped):
            return
        if facts.past and not plan.restore:
            # It begins anew: nobody will ask for what is kept of the job before it.
            self.vault.close()
        facts.own = Autonomy(planned=plan.generation)
        self._begin(plan, reason)

    def _begin(self, plan: fleet_pb2.StartGeneration, reason: str) -> None:
        facts = self.facts
        again = bool(facts.start) and not facts.past
        if again:
            # The generation that it was promised for is over: this one has what there is.
            facts.promised = None
        self.vault.after_promises = not again and facts.promised is None
        facts.start, facts.phases, facts.processes = plan.SerializeToString(), (), ()
        facts.abandoned = ()
        facts.transfer_key = plan.transfer_key or facts.transfer_key
        self.vault.transfer_key = facts.transfer_key
        facts.ended = facts.past = facts.wanted = False
        facts.owner_token_sha256 = facts.token_sha256 or facts.owner_token_sha256
        self._expect(plan)
        self.vault.begin_generation(plan.generation, self._carried(plan.sources))
        self.save()
        self.waiting.over()
        self.restorer.prefetch(plan)
        logger.info("job %s: generation %d: %s", facts.job, plan.generation, reason)
        if self.launcher:
            for message in start_messages(plan, reason, self.request):
                self.launcher.tell(message)

    def end(self, order: fleet_pb2.EndJob, reason: str) -> None:
        """The job is over here: free its memory, or keep it for a while when it failed."""
        self.facts.ended, self.facts.succeeded = True, order.succeeded
        self.facts.unsaved = order.unsaved
        self.facts.end_reason = reason
        self.facts.past = self.facts.wanted = False
        self.facts.promised = None
        self.facts.stopped = max(self.facts.stopped, self.vault.fence)
        self.vault.stopped = self.facts.stopped
        self.save()
        self.storage.when_done(lambda: self._conclude(reason), self.notice)

    def _conclude(self, reason: str) -> None:
        if self.launcher:
            self.launcher.tell(messages.End(self.facts.succeeded, reason))
        if not self.facts.leaves_state:
            self.vault.close()

    def _stop(self, generation: int, reason: str) -> None:
        self._tell(messages.Stop(generation, 0.0, reason))
        self.insist(generation)

    def _settled(self, generation: int) -> None:
        self._tell(messages.Settled(generation))

    def notice(self, text: str) -> None:
        """Tell the launcher's user a sentence."""
        self._tell(messages.Notice(text))

    def _tell(self, message: object) -> bool:
        if self.launcher is None:
            return False
        self.launcher.tell(message)
        return True

    def direct(self, directive: fleet_pb2.VaultDirective) -> None:
        """Do as the directive says; one of an older generation is ignored."""
        if directive.generation < self.vault.fence:
            return
        self.waiting.heard_again()
        self.facts.directive = directive.SerializeToString()
        if directive.transfer_key:
            self.facts.transfer_key = directive.transfer_key
        rule = cadence_from_wire(directive)
        self.facts.cadence = self.facts.cadence.with_rule(directive.generation, rule)
        self.save()
        self._direct(directive)

    def _direct(self, directive: fleet_pb2.VaultDirective) -> None:
        self.vault.transfer_key = self.facts.transfer_key
        recoverable = self.storage.files.apply_directive(
            directive, recoverable_from_wire(directive)
        )
        self.vault.cadence = self.facts.cadence
        self.vault.step_hold = hold_from_wire(directive)
        self.vault.apply_directive(recoverable, target_from_wire(directive))
        if directive.sources:
            self.vault.begin_generation(directive.generation, self._carried(directive.sources))
        self.freshness.told(recoverable, self.context.boot_ns())

    # --- what becomes of its launcher ------------------------------------------------------------

    def stand_by(self, standbys: messages.Standbys | None) -> None:
        """Tell what the launcher has waiting here; None: nothing is known to."""
        if standbys != self.standbys:
            self.standbys = standbys
            self.reporter.soon()

    @property
    def over(self) -> bool:
        """Return whether the job has ended here, or never began."""
        return self.facts.ended or not (self.facts.start or self.facts.directive)

    def refuse(self, reason: str) -> None:
        """Send the launcher away."""
        if self.launcher:
            self.launcher.tell(messages.Refused(reason))

    def close(self) -> None:
        """Forget the job."""
        self.replication.cancel()
        self.alone.close()
        self.storage.close()
        self.progress.close()
        self.vault.close()
        self.report()
        self.context.store.forget(self.facts.job)

    def report(self) -> None:
        """Tell the controller all copies."""
        self.reporter.report()

    def _state_of_things(self) -> fleet_pb2.VaultReport:
        persisted = self.storage.files.persist_state
        return vault_report(self.vault, persisted, self.standbys, self.lessons.to_tell())

    def _vault_changed(self) -> None:
        self.alone.free_soon()
        self.reporter.soon()

    def forget_past(self) -> None:
        """The name is used again for another job, whose generations count from the start."""
        self.vault.reset()
        self.storage.files.persist_state.reset()
        self.lessons.forget()
        # A process of the one before, perhaps another user's, knows a generation of this one.
        self.life += 1
        for rank in self.ranks:
            rank.hang_up()
        facts = self.facts
        facts.start, facts.directive, facts.stopped, facts.stop_ordered = b"", b"", 0, 0
        facts.cadence, facts.own = Cadence(), Autonomy()
        facts.transfer_key = self.vault.transfer_key = b""


def job_on_node(job: NodeJob) -> fleet_pb2.JobOnNode:
    """Return how far the job is here, and whether its launcher is."""
    facts, here = job.facts, job.launcher is not None
    return fleet_pb2.JobOnNode(
        job=facts.job,
        generation=max(job.vault.fence, facts.stopped),
        launcher=here,
        planned_generation=facts.own.planned,
        job_id=facts.job_id if here else 0,
    )
