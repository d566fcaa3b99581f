"""Job record: the one writer of a job's facts. Each change has a name and is saved at once."""

from collections.abc import Iterable
from dataclasses import replace

from everstep_agent.ipc.peer import Peer
from everstep_agent.ipc.processes import ProcessIdentity
from everstep_agent.jobs.state.autonomous_restart_policy import Autonomy
from everstep_agent.jobs.state.facts import (
    NOBODY,
    Ending,
    JobFacts,
    RankProcesses,
    StopMarks,
    StorageAccess,
)
from everstep_agent.jobs.state.lifecycle import Effect, JobEvent, step
from everstep_agent.jobs.state.plan import NO_PLAN, Plan
from everstep_agent.jobs.state.store import JobStore
from everstep_agent.vault.memory.capacity import MemoryForecast
from everstep_agent.vault.snapshots.cadence import Cadence, CadenceRule
from everstep_common.job_ids import token_hash
from everstep_common.launcher_messages import Join
from everstep_common.reports import Phase, RankExited


class JobRecord:
    """Record of one job, which the agent saves at each change. Event loop only."""

    def __init__(self, facts: JobFacts, store: JobStore) -> None:
        self._facts = facts
        self._store = store
        self._retired = False

    @property
    def facts(self) -> JobFacts:
        """Return the facts of this moment."""
        return self._facts

    @property
    def plan(self) -> Plan:
        """Return the newest plan; generation 0 when there was none."""
        return self._facts.plan

    def retire(self) -> None:
        """Save nothing any more: the job is gone, or another record has its place."""
        self._retired = True

    # --- generations: the controller's orders and what comes of them -----------------------------

    def begin(self, plan: Plan, autonomy: Autonomy) -> tuple[Effect, ...]:
        """A newer generation takes the place of the one before."""
        facts = self._facts
        owner = replace(
            facts.owner,
            token_sha256=facts.place.token_sha256 or facts.owner.token_sha256,
            transfer_key=plan.transfer_key or facts.owner.transfer_key,
        )
        effects = self._advance(
            JobEvent.PLANNED,
            replace(
                self._facts,
                plan=plan,
                autonomy=autonomy,
                owner=owner,
                processes=RankProcesses(held=facts.processes.held),
                ending=Ending(),
                # Memory was promised for the first generation only: later ones get what there is.
                promised=None if facts.plan.generation else facts.promised,
                snapshotted=plan.restores or bool(facts.plan.generation and facts.snapshotted),
            ),
        )
        if self._facts.stops.ordered >= plan.generation:  # its stop came before it
            effects += self._advance(JobEvent.STOP_ORDERED, self._facts)
        return effects

    def order_stop(self, generation: int) -> tuple[Effect, ...]:
        """The controller wants a generation stopped, and all before it."""
        stops = replace(self._facts.stops, ordered=max(self._facts.stops.ordered, generation))
        if generation < self.plan.generation:  # the newest one goes on
            self._write(replace(self._facts, stops=stops))
            return (Effect.STOP_PROCESSES,)
        return self._advance(JobEvent.STOP_ORDERED, replace(self._facts, stops=stops))

    def decide_stop(self) -> tuple[Effect, ...]:
        """The agent ends the newest generation while the controller is away."""
        return self._advance(JobEvent.STOP_DECIDED, self._facts)

    def decide_restart(self, now_ns: int) -> tuple[Effect, ...]:
        """The agent ends the newest generation, to begin the next one itself."""
        autonomy = replace(self._facts.autonomy, decided_boot_ns=now_ns)
        return self._advance(JobEvent.RESTART_DECIDED, replace(self._facts, autonomy=autonomy))

    def complete_stop(self, generation: int, *, asked: bool) -> tuple[Effect, ...]:
        """No process of a generation is left; ``asked``: because that was wanted."""
        facts = self._facts
        stops = replace(facts.stops, completed=max(facts.stops.completed, generation))
        if facts.plan.generation > stops.completed:  # a newer one has begun meanwhile
            self._write(replace(self._facts, stops=stops))
            return (Effect.REPORT_STOPPED,) if asked else ()
        processes = replace(facts.processes, running=())
        if stops.ordered > stops.completed:  # the stop of a newer one is still to come
            self._write(replace(self._facts, stops=stops, processes=processes))
            return (Effect.REPORT_STOPPED,) if asked else ()
        event = JobEvent.STOP_COMPLETED if asked else JobEvent.PROCESSES_GONE
        return self._advance(event, replace(self._facts, stops=stops, processes=processes))

    def end(self, ending: Ending, fence: int) -> tuple[Effect, ...]:
        """The job is over; nothing is taken any more of generations up to ``fence``."""
        stops = replace(self._facts.stops, completed=max(self._facts.stops.completed, fence))
        return self._advance(
            JobEvent.END_ORDERED, replace(self._facts, ending=ending, stops=stops, promised=None)
        )

    # --- snapshots -------------------------------------------------------------------------------

    def direct(
        self, directive: bytes, generation: int, rule: CadenceRule, transfer_key: bytes
    ) -> None:
        """The controller's newest word on the snapshots."""
        self.share_key(transfer_key)
        cadence = self._facts.cadence.with_rule(generation, rule)
        self._write(replace(self._facts, directive=directive, cadence=cadence))

    def share_key(self, transfer_key: bytes) -> None:
        """Other agents use this key for the job's copies; an empty one says nothing."""
        if transfer_key:
            self._write(
                replace(self._facts, owner=replace(self._facts.owner, transfer_key=transfer_key))
            )

    def promise_memory(self, forecast: MemoryForecast | None) -> None:
        """The launcher is told that there will be so much memory."""
        self._write(replace(self._facts, promised=forecast))

    def note_snapshot(self) -> None:
        """A rank here commits a snapshot."""
        if not self._facts.snapshotted:
            self._write(replace(self._facts, snapshotted=True))

    def leave_state(self) -> None:
        """A job that has not begun goes on from nothing: it has a lineage of its own."""
        self._write(replace(self._facts, directive=b"", lineage_id=""))

    def use_storage(self, access: StorageAccess) -> None:
        """The launcher's steps go there, with these rights."""
        self._write(replace(self._facts, storage=access))

    # --- its launcher ----------------------------------------------------------------------------

    def identify(self, job_id: str, lineage_id: str) -> None:
        """The controller says which job it is, and whose state it goes on from.

        One that has ended is another job from now on, which has what is kept of it. Its generations
        count on, so those of the one before it stay over.
        """
        facts = replace(self._facts, job_id=job_id, lineage_id=lineage_id)
        if facts.ended and job_id != self._facts.job_id:
            facts = replace(
                facts,
                plan=NO_PLAN,
                ending=Ending(),
                autonomy=Autonomy(),
                cadence=Cadence(),
                promised=None,
            )
            self._advance(JobEvent.CONTINUED, facts)
        else:
            self._write(facts)

    def take_place(self, other: JobFacts) -> None:
        """A launcher that has waited beside it is its own: what it was promised goes along.

        It goes on with it, also where it had ended: the controller has not heard of that.
        """
        stops = self._facts.stops
        self._advance(
            JobEvent.LAUNCHER_GIVEN,
            replace(
                self._facts,
                place=other.place,
                owner=replace(self._facts.owner, uid=other.place.uid),
                promised=other.promised,
                storage=other.storage,
                stops=StopMarks(
                    max(stops.ordered, other.stops.ordered),
                    max(stops.completed, other.stops.completed),
                ),
                ending=Ending(),
            ),
        )

    def admit_launcher(self, request: Join, peer: Peer, process: ProcessIdentity | None) -> None:
        """A launcher has the job's place on this node."""
        place = replace(
            self._facts.place,
            uid=peer.uid,
            token_sha256=token_hash(request.token),
            process=process,
            free_port=request.free_port,
        )
        self._write(
            replace(self._facts, place=place, owner=replace(self._facts.owner, uid=peer.uid))
        )

    def note_free_port(self, port: int) -> None:
        """The launcher has found a port for the next generation."""
        self._write(replace(self._facts, place=replace(self._facts.place, free_port=port)))

    def dismiss_launcher(self) -> None:
        """The launcher went as it was told."""
        place = replace(self._facts.place, process=None)
        self._write(replace(self._facts, place=place, promised=None))

    def vacate_place(self) -> None:
        """Launcher and ranks are gone: the controller alone checks who comes next."""
        facts = self._facts
        self._write(
            replace(
                self._facts,
                place=replace(facts.place, uid=NOBODY, token_sha256="", process=None),
                processes=replace(facts.processes, running=()),
                promised=None,
            )
        )

    # --- its processes ---------------------------------------------------------------------------

    def count_processes(self, running: Iterable[ProcessIdentity]) -> None:
        """These must be dead before the generation is."""
        self._write(
            replace(self._facts, processes=replace(self._facts.processes, running=tuple(running)))
        )

    def reach_phase(self, phase: Phase) -> None:
        """All ranks here have reached a phase."""
        processes = self._facts.processes
        self._write(
            replace(self._facts, processes=replace(processes, phases=(*processes.phases, phase)))
        )

    def abandon_processes(self, numbers: tuple[int, ...], held: Iterable[ProcessIdentity]) -> None:
        """SIGKILL does not end those that are held; ``numbers``: as the launcher counts them."""
        processes, given_up = self._facts.processes, tuple(held)
        running = tuple(one for one in processes.running if one not in given_up)
        after = replace(processes, running=running, held=given_up, abandoned=numbers)
        self._write(replace(self._facts, processes=after))

    # --- what the agent may decide itself --------------------------------------------------------

    def count_failure(self, failure: RankExited) -> None:
        """A rank ended before its generation did."""
        self._write(replace(self._facts, autonomy=self._facts.autonomy.with_failure(failure)))

    def mark_spoiled(self, generation: int) -> None:
        """A rank called its state bad: where to go back to, the controller knows."""
        self._write(
            replace(self._facts, autonomy=replace(self._facts.autonomy, spoiled=generation))
        )

    def leave(self) -> None:
        """The user ends the job here: whatever dies now is to die."""
        autonomy = replace(self._facts.autonomy, left=self.plan.generation)
        self._advance(JobEvent.USER_LEFT, replace(self._facts, autonomy=autonomy))

    # --- inside ----------------------------------------------------------------------------------

    def _advance(self, event: JobEvent, facts: JobFacts) -> tuple[Effect, ...]:
        taken = step(facts.state, event)
        self._write(replace(facts, state=taken.to))
        return taken.effects

    def _write(self, facts: JobFacts) -> None:
        if facts == self._facts:
            return
        before, self._facts = self._facts, facts
        if self._retired:
            return
        if facts.key != before.key:
            self._store.rename(before.key, facts)
        else:
            self._store.save(facts)
