"""Node job: one job on this node; carries out the controller's orders and reports the outcome."""

import logging
from collections.abc import Iterable
from functools import partial

from everstep_agent.jobs.job.autonomous_restart import AutonomousRestart, JobControl
from everstep_agent.jobs.job.context import JobContext
from everstep_agent.jobs.job.inspection import Inspections
from everstep_agent.jobs.job.local_processes import LocalProcesses
from everstep_agent.jobs.job.member_agreement import MemberAgreement
from everstep_agent.jobs.job.output import JobOutput
from everstep_agent.jobs.job.peers import ConnectedRanks, LauncherLink
from everstep_agent.jobs.job.progress import Freshness
from everstep_agent.jobs.job.progress_flow import ProgressFlow
from everstep_agent.jobs.job.report import Reporter, vault_report
from everstep_agent.jobs.job.spare import PreloadRelay, SpareDuty
from everstep_agent.jobs.job.stopping import GenerationStopper, RunningParts
from everstep_agent.jobs.job.storage_lifecycle import StorageLifecycle
from everstep_agent.jobs.standing.standing_watch import StandingWatch
from everstep_agent.jobs.state.autonomous_restart_policy import Autonomy
from everstep_agent.jobs.state.facts import Ending, JobFacts
from everstep_agent.jobs.state.job_record import JobRecord
from everstep_agent.jobs.state.lifecycle import Effect
from everstep_agent.jobs.state.plan import Plan, restore_plan_of
from everstep_agent.jobs.state.records import start_message
from everstep_agent.vault.directives import (
    cadence_of,
    collector_of,
    hold_of,
    recoverable_of,
    target_of,
)
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.replication.replicator import Replicator
from everstep_agent.vault.restore.restorer import Restorer
from everstep_agent.vault.snapshots.copies import InitialCopies, Recoverable, initial_copies
from everstep_agent.vault.snapshots.restore_plan import copy_named_by
from everstep_common import launcher_messages, reports
from everstep_common.orders import EndJob, ShardSource, VaultDirective
from everstep_common.reports import JobOnNode, RanksWithoutSnapshot
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import from_wire, to_wire

logger = logging.getLogger(__name__)


class NodeJob:
    """One job on this node: holds its record, vault, launcher and processes together."""

    def __init__(self, facts: JobFacts, context: JobContext) -> None:
        self.context = context
        self.record = record = JobRecord(facts, context.store)
        self.link = link = LauncherLink()
        self.ranks = ConnectedRanks()
        self.freshness = Freshness()
        self.reporter = Reporter(
            context.outlet, context.settings.report_delay_s, self._vault_report
        )
        self.output = JobOutput(context.output_memory)
        self.inspections = Inspections(link, lambda: self.facts.plan.processes)
        self.preloads = PreloadRelay(record, link, self._report_soon)
        self.vault = vault = JobVault(
            context.vault_context, facts.job, context.spawn, self._on_vault_change
        )
        control = JobControl(self._stop_processes, self._begin_own)
        self.restart = AutonomousRestart(record, link, vault, context, control)
        self.restorer = Restorer(vault)
        self.spare = SpareDuty(record, link, vault, self.restorer)
        self.processes = LocalProcesses(record, context)
        self.progress = ProgressFlow(context.outlet, self._on_first_step)
        self.standing = StandingWatch(
            context.outlet.record, context.boot_ns, lambda: self.facts.active
        )
        parts = RunningParts(
            record, link, self.ranks, self.processes, self.progress, vault, self.standing
        )
        self.stopper = GenerationStopper(parts, context, self.report, self.restart.restart_in_place)
        self.storage = StorageLifecycle(record, link, vault, context)
        replicator = Replicator(vault, context.spawn, context.jitter)
        self.agreement = MemberAgreement(
            record, vault, replicator, context, self._record_recoverable
        )
        self._adopt(facts)
        self._replication = context.spawn(replicator.run(), f"replicator {facts.job}")

    @property
    def facts(self) -> JobFacts:
        """Return what is known of the job at this moment."""
        return self.record.facts

    def _adopt(self, facts: JobFacts) -> None:
        vault, plan = self.vault, facts.plan
        vault.uid, vault.transfer_key = facts.owner.uid, facts.owner.transfer_key
        vault.lineage = facts.lineage
        # The stop counts as settled again only when all memory that outlived the restart is hashed.
        vault.stopped = facts.stops.completed
        if plan.generation:
            self._expect(plan, unsure=True)
            vault.begin_generation(plan.generation, self._initial_copies(plan.sources))
        if facts.directive:
            wire = fleet_pb2.VaultDirective.FromString(facts.directive)
            self._direct(from_wire(VaultDirective, wire))

    def _initial_copies(self, sources: Iterable[ShardSource]) -> InitialCopies:
        holders = ((copy_named_by(one).key, one.node) for one in sources)
        return initial_copies(holders, self.context.vault_context.node)

    def _expect(self, plan: Plan, *, unsure: bool = False) -> None:
        self.processes.expect(plan)
        self.reporter.ranks = plan.world_size
        self.storage.begin_generation(plan)
        self.progress.begin(plan)
        self.standing.begin(plan, unsure=unsure)

    # --- what the controller orders ------------------------------------------------------------

    def start(self, plan: Plan, reason: str) -> None:
        """Start a generation, or say again how far it is; an older or stopped one is ignored."""
        facts = self.facts
        if plan.generation > max(facts.plan.generation, facts.stops.completed):
            self._begin(plan, reason, Autonomy(planned=plan.generation))
        elif plan.generation == facts.plan.generation and facts.active:
            self.processes.report_again()

    def _begin_own(self, plan: Plan, reason: str) -> None:
        self._begin(plan, reason, self.facts.autonomy)

    def _begin(self, plan: Plan, reason: str, autonomy: Autonomy) -> None:
        first = not self.facts.plan.generation
        effects = self.record.begin(plan, autonomy)
        if first and not plan.restores:
            self.vault.drop_copies()  # what is left of the job before it, which nobody wants
        if Effect.BEGIN_GENERATION not in effects:
            return
        facts = self.facts
        self.vault.after_promises = first and facts.promised is None
        self.vault.transfer_key = facts.owner.transfer_key
        self.stopper.begin()
        self._expect(plan)
        self.vault.begin_generation(plan.generation, self._initial_copies(plan.sources))
        self.spare.end()
        self.restorer.prefetch(restore_plan_of(plan))
        logger.info("job %s: generation %d: %s", facts.job, plan.generation, reason)
        self.link.send(start_message(plan, reason))
        if Effect.STOP_PROCESSES in effects:
            self._stop_processes(facts.stop_due, "its stop was ordered before it came")

    def end(self, order: EndJob) -> None:
        """The job is over here: free its memory, or keep it for a while when it failed."""
        ending = Ending(succeeded=order.succeeded, unsaved=order.unsaved, reason=order.reason)
        effects = self.record.end(ending, self.vault.fence)
        self.vault.stopped = self.facts.stops.completed
        if Effect.CONCLUDE in effects:
            launcher, job_id = self.link.job, self.facts.job_id
            self.storage.when_done(partial(self._conclude, ending, launcher, job_id))

    def _conclude(self, ending: Ending, launcher: str, job_id: str) -> None:
        goes_on = self.facts.job_id == job_id and not self.facts.ended
        if self.facts.active or goes_on:
            return
        # Another job may have gone on from this one, and its launcher may have come, meanwhile.
        if self.link.job == launcher:
            self.link.send(launcher_messages.End(ending.succeeded, ending.reason))
        if self.facts.job_id == job_id and not ending.leaves_state:
            self.vault.close()

    def direct(self, directive: VaultDirective) -> None:
        """Do as the directive says; one of an older generation is ignored."""
        if directive.generation < self.vault.fence:
            return
        self.spare.stop_fetching()
        before = self.facts.cadence.usual
        self.record.direct(
            to_wire(directive, fleet_pb2.VaultDirective).SerializeToString(),
            directive.generation,
            cadence_of(directive),
            directive.transfer_key,
        )
        self._direct(directive)
        if directive.cadence_reason and self.facts.cadence.usual != before:
            self.notify(directive.cadence_reason)

    def _direct(self, directive: VaultDirective) -> None:
        vault = self.vault
        vault.transfer_key = self.facts.owner.transfer_key
        self.storage.files.absent_ranks.token_sha256 = self.facts.owner.token_sha256
        recoverable = self.storage.files.apply_directive(directive, recoverable_of(directive))
        vault.cadence, vault.step_hold = self.facts.cadence, hold_of(directive)
        vault.member_away = directive.member_away
        vault.apply_directive(recoverable, target_of(directive))
        vault.collector = collector_of(directive)
        self.agreement.end()
        if directive.sources:
            vault.begin_generation(directive.generation, self._initial_copies(directive.sources))
        self._record_recoverable(recoverable)

    def _record_recoverable(self, recoverable: Recoverable) -> None:
        self.freshness.record_recoverable(recoverable, self.context.boot_ns())

    def identify(self, job_id: str, lineage_id: str) -> None:
        """Take the controller's word for which job it is, and whose state it goes on from."""
        before = self.facts
        if before.lineage_id and self.vault.holdings.size_bytes:
            lineage_id = before.lineage_id  # its copies are known by it, also to other nodes
        self.record.identify(job_id, lineage_id or before.lineage_id)
        self.vault.lineage = self.facts.lineage
        if not before.ended:
            self.link.job = self.facts.reported_as
        elif job_id != before.job_id:
            self.preloads.forget()
        # What it has of storage and standbys was told to nobody before it had an id.
        self._report_soon()

    def take_launcher(self, other: "NodeJob") -> None:
        """A launcher that has waited as another job's here is this one's."""
        self.record.take_place(other.facts)
        self.link.take_over(other.link)
        self.link.job = self.facts.reported_as
        self.vault.uid = self.facts.owner.uid
        self.vault.spare_slots = int(self.facts.storage.storage is not None)
        self.storage.follow_launcher(unreported=other.storage.unreported)
        self.spare.resume()
        self.preloads.send_to_launcher()
        self._report_soon()

    def leave_state(self) -> None:
        """It goes on from nothing, for it has not begun: give back what it would have had."""
        self.vault.close()
        self.report()  # under the lineage that it leaves
        self.record.leave_state()
        self.vault.lineage = self.facts.lineage

    # --- its launcher ----------------------------------------------------------------------------

    def notify(self, sentence: str) -> None:
        """Tell the launcher's user a sentence."""
        self.link.send(launcher_messages.Notice(sentence))

    def hold(self, reason: str, *, spare: bool) -> None:
        """Tell the launcher that it waits; ``spare``: its job goes on without it."""
        if self.link.knows_spares:
            self.link.send(launcher_messages.Hold(reason, spare))
        else:
            self.notify(reason)

    def tell_identity(self) -> None:
        """Tell the launcher which job it is of, if that is known and it understands it."""
        request, job_id = self.link.request, self.facts.job_id
        if request is not None and job_id:
            self.link.send(launcher_messages.Identified(job_id))

    def record_standbys(self, standbys: reports.Standbys | None) -> None:
        """The launcher has these waiting here; None: nothing is known to."""
        if standbys != self.link.standbys:
            self.link.standbys = standbys
            self._report_soon()

    def dismiss_launcher(self) -> None:
        """The launcher went as it was told: whoever comes next may be another user."""
        self.link.peer = None
        self.record.dismiss_launcher()
        self.record_standbys(None)
        if self.facts.idle:
            self.vacate_place()

    def vacate_place(self) -> None:
        """Launcher and ranks are gone: the next launcher is checked by the controller alone."""
        self.record.vacate_place()
        self.spare.end()
        self.record_standbys(None)
        self.vault.release_idle_memory()

    # --- what is reported ------------------------------------------------------------------------

    def report(self) -> None:
        """Report all copies now; a launcher that nobody has answered yet has none."""
        if self.facts.job_id or self.facts.begun:
            self.reporter.report()

    def on_node(self) -> JobOnNode:
        """Return what Hello tells: how far the job is here, and whether its launcher is."""
        facts, here = self.facts, self.link.connected
        generation = max(self.vault.fence, facts.stops.completed)
        return JobOnNode(
            job=facts.job,
            generation=generation,
            launcher=here,
            planned_generation=facts.autonomy.planned,
            job_id=facts.job_id,
            lineage_id=facts.lineage_id,
            world_size=facts.plan.world_size if facts.plan.generation == generation else 0,
            without_snapshot=self._without_snapshot(),
        )

    def _without_snapshot(self) -> RanksWithoutSnapshot | None:
        """Return the ranks of the newest plan, if nobody here has seen a snapshot of the job.

        Of a job with storage nobody knows: ranks write there by themselves while no agent is there.
        """
        facts, plan = self.facts, self.facts.plan
        stores = facts.storage.storage is not None
        if not plan.generation or facts.snapshotted or stores or self.vault.holdings.manifests():
            return None
        return RanksWithoutSnapshot(
            generation=plan.generation,
            ranks=plan.processes,
            world_size=plan.world_size,
            stop_ordered=facts.stops.ordered >= plan.generation,
        )

    def _vault_report(self) -> fleet_pb2.VaultReport:
        persisted, preload = self.storage.files.persist_state, self.preloads.reported()
        report = vault_report(self.vault, persisted, self.link.standbys, preload)
        report.lineage_id = self.facts.lineage_id
        return report

    def _on_vault_change(self) -> None:
        self.agreement.free_soon()
        self._report_soon()

    def _report_soon(self) -> None:
        if self.facts.job_id or self.facts.begun:
            self.reporter.report_soon()

    def _on_first_step(self, generation: int) -> None:
        self.link.send(launcher_messages.Settled(generation))

    def _stop_processes(self, generation: int, reason: str) -> None:
        self.stopper.stop_processes(generation, 0.0, reason)

    def close(self) -> None:
        """Forget the job."""
        self.retire()
        self.report()
        self.context.store.forget(self.facts.key)

    def retire(self) -> None:
        """Do nothing more, and keep nothing."""
        self.record.retire()
        self._replication.cancel()
        self.restart.close()
        self.agreement.close()
        self.storage.close()
        self.progress.flush()
        self.standing.close()
        self.vault.close()
        self.vault.receive_buffers.close()
        self.reporter.close()
