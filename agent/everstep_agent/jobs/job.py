"""One job on this node: follows the controller's orders, and says what becomes of them."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from everstep_agent.jobs.alone import Alone, Hands
from everstep_agent.jobs.alone_rules import OwnFacts
from everstep_agent.jobs.desk import Desk
from everstep_agent.jobs.facts import JobFacts, token_hash
from everstep_agent.jobs.freshness import Freshness
from everstep_agent.jobs.phases import PhaseCount
from everstep_agent.jobs.processes import Peer, ProcessIdentity, alive, descends, identify
from everstep_agent.jobs.progress_flow import ProgressFlow
from everstep_agent.jobs.records import (
    joined_again_record,
    phase_record,
    start_message,
)
from everstep_agent.jobs.report import Reporter, vault_report
from everstep_agent.jobs.storing import Storing
from everstep_agent.vault.bell import Bell
from everstep_agent.vault.cadence import Cadence
from everstep_agent.vault.directions import (
    cadence_from_wire,
    carried_from_wire,
    hold_from_wire,
    recoverable_from_wire,
    target_from_wire,
)
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.replicator import Replicator
from everstep_agent.vault.restoring.restore import Restorer
from everstep_agent.vault.spare_memory import wait_as_spare
from everstep_common import trainer_messages as messages
from everstep_proto.generated import fleet_pb2

logger = logging.getLogger(__name__)


class Launcher(Protocol):
    """A connected launcher."""

    def tell(self, message: object) -> None:
        """Send a message, in order."""
        ...

    def hang_up(self) -> None:
        """End the connection."""
        ...


class Rank(Protocol):
    """A connected training process."""

    def hang_up(self) -> None:
        """End the connection."""
        ...


class NodeJob:
    """What holds a job together here: facts, vault, the launcher, the count of its phases."""

    def __init__(self, facts: JobFacts, desk: Desk) -> None:
        self.facts = facts
        self.desk = desk
        gather_s = desk.settings.report_gather_s
        self.reporter = Reporter(
            desk.outlet, gather_s, lambda: vault_report(self.vault, self.standbys)
        )
        self.vault = JobVault(desk.site, facts.job, desk.spawn, self._vault_changed)
        self.alone = Alone(facts, self.vault, desk, Hands(self._tell, self._stop, self._begin))
        self.restorer = Restorer(self.vault)
        # Sees to it that a generation ends, whatever its launcher does.
        self.insist: Callable[[int], None] = lambda _: None
        self.launcher: Launcher | None = None
        # What the launcher asked for when it joined.
        self.request: messages.Join | None = None
        # What it has waiting for the next generation.
        self.standbys: messages.Standbys | None = None
        self.phases = PhaseCount(0)
        self.progress = ProgressFlow(facts.plan, desk.outlet, self._settled)
        self.freshness = Freshness()
        # Watches a launcher that is away.
        self.absence: asyncio.Task[None] | None = None
        # Why its launcher is not counted on any more, if so.
        self.reproach = ""
        # Process that is connected for a generation and rank.
        self.attached: dict[tuple[int, int], int] = {}
        self.detached = Bell()
        # Training processes that are connected, and of which job of this name they are.
        self.ranks: set[Rank] = set()
        self.life = 0
        # What its node shall have ready while it waits as a spare.
        self.awaited: fleet_pb2.SpareMemory | None = None
        self.storage = Storing(facts, self.vault, desk)
        self._adopt_facts()
        replicator = Replicator(self.vault, desk.spawn, desk.jitter)
        self.replication = desk.spawn(replicator.run(), f"replicator {facts.job}")

    def _adopt_facts(self) -> None:
        facts, vault = self.facts, self.vault
        vault.uid, vault.transfer_key = facts.owner, facts.transfer_key
        # Settled again only when all that outlived the restart has been hashed: see settle().
        vault.stopped = facts.stopped
        plan = facts.plan
        if plan.generation:
            vault.begin_generation(plan.generation, carried_from_wire(plan, self.desk.site.node))
            self._expect(plan)
        if facts.directive:
            self._direct(fleet_pb2.VaultDirective.FromString(facts.directive))

    def _expect(self, plan: fleet_pb2.StartGeneration) -> None:
        self.phases = PhaseCount(plan.processes, set(self.facts.phases))
        self.storage.files.world_size = self.reporter.ranks = plan.world_size
        self.progress.close()
        self.progress = ProgressFlow(plan, self.desk.outlet, self._settled)

    def save(self) -> None:
        """Keep the facts over a restart of the agent."""
        self.desk.store.save(self.facts)

    # --- what the controller orders ------------------------------------------------------------

    def start(self, plan: fleet_pb2.StartGeneration, reason: str) -> None:
        """Start a generation; one that is not newer than what was started or stopped is ignored."""
        facts = self.facts
        if (facts.ended or facts.past) and plan.generation <= facts.plan.generation:
            self._forget_past()
        if plan.generation <= max(facts.plan.generation, facts.stopped):
            return
        if facts.past and not plan.restore:
            # It begins anew: nobody will ask for what is kept of the job before it.
            self.vault.close()
        facts.own = OwnFacts(planned=plan.generation)
        self._begin(plan, reason)

    def _begin(self, plan: fleet_pb2.StartGeneration, reason: str) -> None:
        facts = self.facts
        facts.start, facts.phases, facts.processes = plan.SerializeToString(), (), ()
        facts.transfer_key = plan.transfer_key or facts.transfer_key
        self.vault.transfer_key = facts.transfer_key
        facts.ended = facts.past = facts.wanted = False
        facts.owner_token_sha256 = facts.token_sha256 or facts.owner_token_sha256
        self._expect(plan)
        begins_from = carried_from_wire(plan, self.desk.site.node)
        self.vault.begin_generation(plan.generation, begins_from)
        self.save()
        self.awaited = None
        self.restorer.prefetch(plan)
        logger.info("job %s: generation %d: %s", facts.job, plan.generation, reason)
        if self.launcher:
            self.launcher.tell(start_message(plan, reason))

    def end(self, order: fleet_pb2.EndJob, reason: str) -> None:
        """The job is over here: free its memory, or keep it for a while when it failed."""
        self.facts.ended, self.facts.succeeded = True, order.succeeded
        self.facts.past = self.facts.wanted = False
        self.facts.stopped = max(self.facts.stopped, self.vault.fence)
        self.vault.stopped = self.facts.stopped
        self.save()
        self.storage.when_done(lambda: self._conclude(reason), self._notice)

    def _conclude(self, reason: str) -> None:
        succeeded = self.facts.succeeded
        if self.launcher:
            self.launcher.tell(messages.End(succeeded, reason))
        if succeeded:
            self.vault.close()

    def _stop(self, generation: int, reason: str) -> None:
        self._tell(messages.Stop(generation, 0.0, reason))
        self.insist(generation)

    def _settled(self, generation: int) -> None:
        self._tell(messages.Settled(generation))

    def _notice(self, text: str) -> None:
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
        self._heard_again()
        self.facts.directive = directive.SerializeToString()
        if directive.transfer_key:
            self.facts.transfer_key = directive.transfer_key
        rule = cadence_from_wire(directive)
        self.facts.cadence = self.facts.cadence.told(directive.generation, rule)
        self.save()
        self._direct(directive)

    def wait_as_spare(self, wanted: fleet_pb2.SpareMemory) -> None:
        """Have memory ready for the place of a member that fails; none where one is held here."""
        if not wanted.ahead:
            self._heard_again()
        elif wanted.transfer_key:
            self.facts.transfer_key = self.vault.transfer_key = wanted.transfer_key
        # It may be said before the launcher is back at an agent that has started again.
        self.awaited = wanted
        holds_a_place = self.facts.plan.generation > self.facts.stopped
        if self.launcher is not None and not holds_a_place and not self.facts.ended:
            wait_as_spare(self.vault, self.restorer, wanted)

    def _heard_again(self) -> None:
        """The member is there whose copies were fetched: they go when they are not needed."""
        if self.awaited is not None and self.awaited.ahead:
            self.desk.site.counts.early_left_off += 1
            self.vault.ongoing.leave_off(self.vault.fence)
            del self.awaited.ahead[:]

    def _direct(self, directive: fleet_pb2.VaultDirective) -> None:
        self.vault.transfer_key = self.facts.transfer_key
        recoverable = self.storage.files.direct(directive, recoverable_from_wire(directive))
        self.vault.cadence = self.facts.cadence
        self.vault.hold = hold_from_wire(directive)
        self.vault.direct(recoverable, target_from_wire(directive))
        self.freshness.told(recoverable, self.desk.boot_ns())

    # --- what the launcher and its processes say -------------------------------------------------

    def join(self, request: messages.Join, peer: Peer, launcher: Launcher) -> None:
        """A launcher that may is taken in, and told what it has missed."""
        facts = self.facts
        if facts.ended and (facts.launcher is None or facts.launcher.pid != peer.pid):
            facts.ended, facts.past = False, True
        if facts.owner not in (-1, peer.uid):
            # Nothing of one user's job may reach the next one's, whatever its generations are.
            self._forget_past()
            self.storage.forget()
        facts.uid = facts.owner = peer.uid
        facts.token_sha256 = token_hash(request.token)
        facts.free_port, facts.launcher = request.free_port, identify(peer.pid)
        self.vault.uid = peer.uid
        self.vault.spare_slots = int(request.storage is not None)
        self.launcher, self.request, self.reproach = launcher, request, ""
        self.save()
        launcher.tell(messages.Joined(self.desk.site.node))
        if facts.ended:
            launcher.tell(messages.End(facts.succeeded, "the job ended while the agent was away"))
            return
        self.storage.join(request, peer, lambda: self.launcher is launcher, self._notice)
        if self.awaited is not None:
            self.wait_as_spare(self.awaited)
        plan = facts.plan
        if facts.stop_ordered > facts.stopped:
            launcher.tell(messages.Stop(facts.stop_ordered, 0.0, "ordered while it was away"))
        elif plan.generation > max(request.running_generation, facts.stopped):
            launcher.tell(start_message(plan, "ordered while the launcher was away"))
        else:
            self.alone.back()

    def join_again(self) -> None:
        """Say once more that the launcher takes part: the controller has forgotten it."""
        if self.launcher and self.request and not self.facts.ended:
            seen = self.storage.files.seen
            self.desk.outlet.record(joined_again_record(self.request, self.facts, seen))

    def started(self, message: messages.Started) -> None:
        """All local processes run."""
        if message.generation != self.facts.plan.generation:
            return
        launcher = self.facts.launcher
        for named in message.processes[: self.facts.plan.processes]:
            process = identify(named.pid)
            if process and launcher and descends(named.pid, launcher.pid, self.facts.uid):
                self.watch(process)
        self.reach(fleet_pb2.PHASE_STARTED, None, message.at_boot_ns)

    def watch(self, process: ProcessIdentity) -> None:
        """Count a process among those that must be dead before the generation is."""
        if process not in self.facts.processes:
            self.facts.processes = (*filter(alive, self.facts.processes), process)
            self.save()

    def reach(self, phase: "fleet_pb2.Phase.ValueType", rank: int | None, at_boot_ns: int) -> None:
        """A rank (None: all of them) reached a phase; told once all local ranks have."""
        reached_ns = self.phases.reach(phase, rank, min(at_boot_ns, self.desk.boot_ns()))
        if reached_ns is None:
            return
        self.facts.phases += (phase,)
        self.save()
        self.desk.outlet.record(phase_record(self.facts, phase, reached_ns))

    def stand_by(self, standbys: messages.Standbys | None) -> None:
        """Tell what the launcher has waiting here; None: nothing is known to."""
        if standbys != self.standbys:
            self.standbys = standbys
            self.reporter.soon()

    def running(self) -> bool:
        """Return whether the launcher or a process of the job is still there."""
        launcher = self.facts.launcher
        known = self.facts.processes + ((launcher,) if launcher else ())
        return any(alive(process) for process in known)

    @property
    def over(self) -> bool:
        """Return whether the job has ended here, or never began."""
        return self.facts.ended or not (self.facts.start or self.facts.directive)

    def refuse(self, reason: str) -> None:
        """Send the launcher away."""
        if self.launcher:
            self.launcher.tell(messages.Refused(reason))

    def release_launcher(self) -> None:
        """The launcher went as it was told: whoever comes next may be another user."""
        self.launcher = None
        self.facts.launcher = None
        self.stand_by(None)
        if self.facts.past:  # nothing has come of its job: what is kept is of the one before
            self.facts.ended, self.facts.past = True, False
        if self.over:
            self.vacate()
        self.save()

    def vacate(self) -> None:
        """Launcher and ranks are gone: the next launcher is checked by the controller alone."""
        self.facts.launcher, self.facts.processes = None, ()
        self.awaited = None
        self.stand_by(None)
        self.vault.release_ready()
        self.facts.uid, self.facts.token_sha256 = -1, ""
        self.save()

    def close(self) -> None:
        """Forget the job."""
        self.replication.cancel()
        self.alone.close()
        self.storage.close()
        self.progress.close()
        self.vault.close()
        self.report()
        self.desk.store.forget(self.facts.job)

    def report(self) -> None:
        """Tell the controller all copies."""
        self.reporter.report()

    def _vault_changed(self) -> None:
        self.alone.free_soon()
        self.reporter.soon()

    def _forget_past(self) -> None:
        """The name is used again for another job, whose generations count from the start."""
        self.vault.forget()
        # A process of the one before, perhaps another user's, knows a generation of this one.
        self.life += 1
        for rank in self.ranks:
            rank.hang_up()
        facts = self.facts
        facts.start, facts.directive, facts.stopped, facts.stop_ordered = b"", b"", 0, 0
        facts.cadence, facts.own = Cadence(), OwnFacts()
        facts.transfer_key = self.vault.transfer_key = b""
