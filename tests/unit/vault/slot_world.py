"""Slot protocol as it ships: ranks in lock step, their agents and the controller, in virtual time.

Played here are messages, how long they take, and what goes wrong. Decided is by the product's own
rules: the agent's slots, questions and patience, the rank's handover, the controller's catalogue,
cadence and choice of a step. A rank copies into its slot for some time, and after each event it is
looked at whether its agent counts that slot as anything else than being written by it.
"""

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from itertools import count

from everstep.saving.exchange import Handover
from everstep_agent.vault.snapshots.cadence import Cadence as AgentCadence
from everstep_agent.vault.snapshots.cadence import CadenceRule, StepHold
from everstep_agent.vault.snapshots.copies import CopyKey, Recoverable
from everstep_agent.vault.snapshots.slot_patience import SlotTurnover, summarize_turnover
from everstep_agent.vault.snapshots.slot_questions import SlotOrders, SlotQuestions
from everstep_agent.vault.snapshots.slots import (
    Grant,
    SlotState,
    SlotTable,
    SnapshotSlot,
    told_as_passed,
)
from everstep_common.rank_messages import Commit, CommittedAhead, Entry
from everstep_common.reports import PassedStep, Turnover
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.accounting.committed_steps import CommittedStep
from everstep_controller.core.model.snapshots import BranchPoint, Cadence
from everstep_controller.core.model.state import State
from everstep_controller.core.planned.restarts import margin
from everstep_controller.core.vault.cadence import SnapshotPhase, bring_together
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.recovery_step import Question, choose_step
from unit.core.vault.vault_story import job

TICK_S = 0.05
TICK_NS = 50_000_000
# In ticks: a step, a message between a rank and its agent, a copy, a hash, a word between an agent
# and the controller, what the controller takes to hear of a death, what processes take to die that
# were told to, and how often the controller hears of progress.
STEP, MESSAGE, COPY, HASH, WORD, DEATH, DIES, ROW = 10, 1, 2, 1, 2, 3, 12, 20
# How long the controller waits for the step of a planned restart.
GIVES_UP = 150
SLOT_WAIT_S = 5.0
_SLOT_BYTES = 8
_SHARD, _TOO_LARGE = (Entry("w", 0, 8),), (Entry("w", 0, 9),)


class Fault(Enum):
    """What goes wrong, once."""

    # The agent refuses the next commit of a rank.
    REFUSED = "refused commit"
    # A rank's process dies; its node is lost, with all that it held.
    DEATH = "death"
    NODE = "lost node"
    # A planned restart: carried out; after the very step that is made, of which ranks may hear too
    # late; dropped after a while; never carried out nor dropped.
    HOLD = "hold"
    HOLD_NEAR = "hold of which ranks hear late"
    HOLD_DROPPED = "dropped hold"
    HOLD_STAYS = "hold that stays"
    # The generation is stopped while all of its processes go on for a while.
    ROLLBACK = "rollback"
    # A process leaves its connection and attaches again; its agent sees the end of the older one
    # at once, or after the newer one has asked.
    ATTACH = "attaches again"
    ATTACH_LATE = "attaches again, whose end is seen late"


_CARRIED_OUT = (Fault.HOLD, Fault.HOLD_NEAR)
# Those that do not depend on the rank.
OF_ALL = frozenset(
    {Fault.HOLD, Fault.HOLD_NEAR, Fault.HOLD_DROPPED, Fault.HOLD_STAYS, Fault.ROLLBACK}
)


@dataclass(frozen=True, slots=True)
class Shape:
    """A job, its network, and what goes wrong."""

    slots: int = 3
    # Ticks from a copy's hash until it is on a second node, by rank.
    told: Sequence[int] = (1, 1)
    # Steps that a rank does not save: its script asks for none.
    skips: Sequence[Collection[int]] = ((), ())
    # Ranks wait for slots, or say that they never do.
    waits: bool = True
    # What goes wrong at which rank, after so many events from this step on.
    fault: Fault | None = None
    rank: int = 0
    after: int = 0
    from_step: int = 4

    @property
    def taken_steps(self) -> int:
        """Return how many steps are made until a step that all have saved is recoverable."""
        taken = COPY + MESSAGE + HASH + max(self.told) + 2 * WORD
        return -(-taken // (STEP + COPY))


@dataclass(slots=True)
class Memory:
    """The slots of one process."""

    table: SlotTable
    turnover: SlotTurnover = field(default_factory=SlotTurnover)


@dataclass(slots=True, eq=False)
class Process:
    """One rank's process: its connection, what it was granted, and what it copies into."""

    rank: int
    memory: Memory
    session: "Session | None" = None
    handover: Handover = field(default_factory=Handover)
    reservations: int = 0
    writing: Grant | None = None
    # The step before which it asks again.
    asks_at: int = 0
    gone: bool = False


@dataclass(slots=True, eq=False)
class Session:
    """One connection at its agent."""

    number: int
    process: Process
    questions: SlotQuestions
    # What it waits for (a planned restart, or else a slot), before which step, from when to when.
    waits: tuple[bool, int, int, int] | None = None
    # Its process has left it; it has ended.
    left: bool = False
    ended: bool = False


@dataclass(slots=True, eq=False)
class Node:
    """One node with one rank: its agent."""

    rank: int
    orders: SlotOrders
    memories: list[Memory] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    replicas: set[CopyKey] = field(default_factory=set)
    active: int = 0

    @property
    def name(self) -> str:
        return f"n{self.rank}"

    def verified(self) -> list[CopyKey]:
        return [
            memory.table.copy_key(slot)
            for memory in self.memories
            for slot in memory.table.slots
            if slot.state is SlotState.VERIFIED
        ]


class World:
    """One run."""

    def __init__(self, shape: Shape) -> None:
        self.shape, self.size = shape, len(shape.told)
        self.now = self.step = self.events = 0
        self.generation = 1
        self.doubtful = False
        # What has still to go wrong.
        self._fault = shape.fault
        self._epochs = count(1).__next__
        self._order = count()
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        begin = SlotOrders(AgentCadence(1), None, Recoverable(1))
        self.nodes = [Node(rank, begin) for rank in range(self.size)]
        self.processes: list[Process] = []
        self.inside: set[int] = set()
        self.committed: list[set[int]] = [set() for _ in self.nodes]
        self.refuses: int | None = None
        self.disturbed = max((max(s, default=0) for s in shape.skips), default=0)
        self.longest_wait = 0
        self.restored: int | None = None
        self.restarts = 0
        # The controller.
        self.job = job()
        self.catalogue = Catalogue()
        self.dead: tuple[int, ...] = ()
        self.recoverable: int | None = None
        self.phase, self.cadence = SnapshotPhase(), Cadence()
        self.hold: int | None = None
        self.stopping = False
        self.turnovers: dict[str, Turnover | None] = {}
        self._rows: list[CommittedStep] = []
        self._step_began = 0
        self._start(0)

    # --- the run ---------------------------------------------------------------------------------

    def run(self, common_steps: int, steps_max: int) -> "World":
        """Go on until so many steps after the last fault are common, or this many were made."""
        places = 0
        last = self.shape.from_step + steps_max
        while self._heap and self.step < last and len(self.common()) < common_steps:
            self.now, _, happen = heapq.heappop(self._heap)
            happen()
            self._check()
            if self.generation == 1 and not self.stopping and self.step >= self.shape.from_step:
                places += 1
                if self._fault is not None and places == self.shape.after + 1:
                    self._go_wrong(self._fault)
                    self._check()
        self.events = places
        return self

    def common(self) -> list[int]:
        """Return the steps after the last fault that all ranks have saved."""
        if self._fault is not None or self.stopping or self._to_come:
            return []
        return sorted(s for s in set.intersection(*self.committed) if s > self.disturbed)

    @property
    def _to_come(self) -> bool:
        """Return whether what was planned has not happened yet."""
        return self.shape.fault in _CARRIED_OUT and self.restarts == 0

    def _later(self, ticks: int, happen: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + ticks, next(self._order), happen))

    def _check(self) -> None:
        for process in self.processes:
            if process.writing is not None:
                self._check_written(process, process.writing)
            ahead = process.handover.ahead
            usable = process.handover.given_in == _place(process) and not process.gone
            if ahead is not None and usable and _is_connected(process):
                self._check_written(process, Grant(ahead.slot, ahead.epoch))
        for node in self.nodes:
            assert all(len(m.table.slots) <= self.shape.slots for m in node.memories)

    def _check_written(self, process: Process, grant: Grant) -> None:
        """What a process writes, or may write at any time, is nothing else to its agent."""
        slots = process.memory.table.slots
        slot = next((slot for slot in slots if slot.index == grant.slot), None)
        if _is_connected(process):
            assert slot is not None, "a slot that is written counts as free memory"
            assert slot.state is SlotState.WRITING, "a slot that is written is none"
            assert slot.epoch == grant.epoch, "a slot is given to two"
        elif slot is not None:
            # Its connection has ended while it copied: nobody reads that.
            assert slot.state not in _READ, "a slot is read while it is written"

    # --- ranks -----------------------------------------------------------------------------------

    def _start(self, step: int) -> None:
        self.step, self._step_began = step, self.now
        for node in self.nodes:
            node.active = self.generation
            slots = [SnapshotSlot(index) for index in range(self.shape.slots)]
            table = SlotTable(self.generation, node.rank, _SLOT_BYTES, slots, self._epochs)
            node.memories.append(Memory(table))
            process = Process(node.rank, node.memories[-1])
            self.processes.append(process)
            self._attach(process)
        self._later(STEP, partial(self._boundary, self.generation))

    def _attach(self, process: Process) -> None:
        """Attach, and ask for slots: the ones that this process had."""
        questions = SlotQuestions(process.memory.table.generation)
        session = process.session = Session(self._epochs(), process, questions)
        process.reservations += 1
        self.nodes[process.rank].sessions.append(session)

    def is_refused(self, process: Process) -> bool:
        """Return whether a process may not attach: an older connection of it is still open."""
        return not all(session.ended for session in self.nodes[process.rank].sessions)

    def _current(self) -> list[Process]:
        return self.processes[-self.size :]

    def _boundary(self, generation: int) -> None:
        if generation != self.generation:
            return
        self.inside = set(range(self.size))
        for process in self._current():
            if not process.gone:
                self._pass(process)

    def _pass(self, process: Process) -> None:
        step = self.step
        if self.restarts == 0 and step in self.shape.skips[process.rank]:
            self._leave(process)
            return
        if process.session is None:
            if self.is_refused(process):
                self._leave(process)
                return
            self._attach(process)
        assert process.session is not None
        slot = process.handover.take_grant(step, _place(process))
        if slot is not None:
            self._copy(process, step, Grant(slot.slot, slot.epoch))
        elif step < process.asks_at:
            self._leave(process)
        else:
            self._later(MESSAGE, partial(self._asked, process.session, step))

    def _copy(self, process: Process, step: int, grant: Grant) -> None:
        process.writing = grant
        self._later(COPY, partial(self._copied, process, process.session, step, grant))

    def _copied(self, process: Process, session: Session | None, step: int, grant: Grant) -> None:
        if process.gone:
            return
        process.writing = None
        if session is not None and session is process.session:
            self._later(MESSAGE, partial(self._commit, session, step, grant))
        self._leave(process)

    def _leave(self, process: Process) -> None:
        if process not in self._current():
            return
        self.inside.discard(process.rank)
        if not self.inside:
            self._progress()
            self.step += 1
            self._later(STEP, partial(self._boundary, self.generation))

    def _progress(self) -> None:
        span = self._step_began * TICK_NS, self.now * TICK_NS
        made = CommittedStep(self.step, *span, span[1] - span[0], Category.SLOW, 0)
        self._step_began = self.now
        if not self._rows:
            self._later(ROW - self.now % ROW, partial(self._hear_rows, self.generation))
        self._rows.append(made)

    def _hear_answer(self, session: Session, step: int, answer: Grant | int | str) -> None:
        """Hear of a slot, of the next step that is wanted, or of why there is none."""
        process = session.process
        if process.gone or process.session is not session:
            return
        if isinstance(answer, Grant):
            self._copy(process, step, answer)
            return
        if isinstance(answer, int):
            process.asks_at = answer
        self._leave(process)

    def _hear_committed(self, session: Session, answer: CommittedAhead | None) -> None:
        process = session.process
        if process.session is session and answer is not None:
            process.handover.ahead = answer
            process.handover.given_in = _place(process)

    # --- agents ----------------------------------------------------------------------------------

    def _accepts(self, session: Session) -> bool:
        node = self.nodes[session.process.rank]
        return node.active == session.process.memory.table.generation

    def _end_writing(self, session: Session) -> None:
        table = session.process.memory.table
        table.abandon()
        table.take_empty()

    def _asked(self, session: Session, step: int) -> None:
        if session.ended:
            return
        self._end_writing(session)
        orders = self.nodes[session.process.rank].orders
        if not self._accepts(session):
            self._answer(session, step, "over")
        elif session.questions.is_held(orders, step):
            self._wait(session, (True, step, self.now, self.now + _ticks(SLOT_WAIT_S)))
        else:
            self._want(session, step)

    def _want(self, session: Session, step: int) -> None:
        orders, memory = self.nodes[session.process.rank].orders, session.process.memory
        again = session.questions.step_to_ask_at(orders, step, self.now * TICK_S)
        if again != step:
            self._answer(session, step, again)
        elif refusal := memory.table.refusal(step):
            self._leave_out(session, step, refusal)
        else:
            until = self.now + self._longest_wait(session, step)
            self._wait(session, (False, step, self.now, until))

    def _longest_wait(self, session: Session, step: int) -> int:
        orders = self.nodes[session.process.rank].orders
        if session.questions.is_last_step(orders, step):
            return _ticks(SLOT_WAIT_S)
        if not self.shape.waits or session.questions.vain_reason(orders, step):
            return 0
        return _ticks(session.process.memory.turnover.bound_wait_s(SLOT_WAIT_S))

    def _wait(self, session: Session, waits: tuple[bool, int, int, int]) -> None:
        session.waits = waits
        self._look(session)
        if session.waits is not None:
            self._later(waits[3] - self.now, partial(self._look, session))

    def _look(self, session: Session) -> None:
        """See whether what a session waits for has come, or its time is over."""
        if session.waits is None:
            return
        held, step, since, until = session.waits
        node, table = self.nodes[session.process.rank], session.process.memory.table
        serves, late = not table.retired, self.now >= until
        if held:
            if serves and not late and session.questions.is_held(node.orders, step):
                return
            session.waits = None
            session.questions.record_hold_ended(node.orders, step)
            if table.retired:
                self._answer(session, step, "stopped, as planned")
            else:
                self._want(session, step)
            return
        grant = table.begin_step(step, node.orders.recoverable) if serves else None
        if grant is None and serves and not late:
            return
        session.waits = None
        self.longest_wait = max(self.longest_wait, self.now - since)
        if grant is not None:
            self._answer(session, step, grant)
            return
        if serves and until > since:
            session.questions.record_vain_wait(node.orders, step, "no slot")
        self._leave_out(session, step, "no slot")

    def _leave_out(self, session: Session, step: int, reason: str) -> None:
        self.tell_left_out(session, step)
        self._answer(session, step, reason)

    def tell_left_out(self, session: Session, step: int) -> None:
        """Tell that a rank goes past a step without a copy."""
        if session.process.memory.table.leave_out(step):
            self._report(self.nodes[session.process.rank])

    def _answer(self, session: Session, step: int, answer: Grant | int | str) -> None:
        self._later(MESSAGE, partial(self._hear_answer, session, step, answer))
        if session.left:
            self._later(0, partial(self._end, session))

    def _commit(self, session: Session, step: int, grant: Grant) -> None:
        if session.ended:
            return
        node, memory = self.nodes[session.process.rank], session.process.memory
        answer = None
        if not self._accepts(session):
            pass  # refused; the slot is its process's until that asks again or is gone
        elif session.questions.is_held(node.orders, step):
            self._end_writing(session)
        elif not memory.table.retired:
            answer = self._take_over(session, step, grant)
        self._later(MESSAGE, partial(self._hear_committed, session, answer))

    def _take_over(self, session: Session, step: int, grant: Grant) -> CommittedAhead | None:
        node, memory = self.nodes[session.process.rank], session.process.memory
        table, now_s = memory.table, self.now * TICK_S
        bad = self.refuses == node.rank
        self.refuses = None if bad else self.refuses
        entries = _TOO_LARGE if bad else _SHARD
        slot = table.commit(Commit(step, grant.slot, grant.epoch, entries, ahead=True))
        if isinstance(slot, str):
            return None
        self.committed[node.rank].add(step)
        memory.turnover.record_commit(slot.epoch, now_s)
        self._later(HASH, partial(self._hashed, node, memory, slot, slot.epoch))
        wanted = session.questions.step_ahead(node.orders, step, now_s)
        if wanted is None:
            return None
        ahead = table.grant_ahead(wanted, node.orders.recoverable)
        if ahead is None:
            return None
        return CommittedAhead(step, wanted, wanted, ahead.slot, ahead.epoch)

    def _hashed(self, node: Node, memory: Memory, slot: SnapshotSlot, epoch: int) -> None:
        key = memory.table.copy_key(slot)
        if memory not in node.memories or not memory.table.mark_verified(slot, epoch, b"h"):
            return
        self._free(node)
        self._report(node)
        self._later(self.shape.told[node.rank], partial(self._replicate, node, memory, key))

    def _replicate(self, node: Node, memory: Memory, key: CopyKey) -> None:
        target = self.nodes[(node.rank + 1) % self.size]
        here = memory in node.memories and key in node.verified()
        if here and not target.orders.recoverable.frees(key, replica=True):
            target.replicas.add(key)
            self._report(target)

    def _free(self, node: Node) -> None:
        for memory in node.memories:
            memory.table.free_unneeded(node.orders.recoverable)
            memory.table.take_empty()
            memory.turnover.record_slots(memory.table.slots, self.now * TICK_S)
        frees = node.orders.recoverable.frees
        node.replicas = {key for key in node.replicas if not frees(key, replica=True)}
        for session in node.sessions:
            self._look(session)

    def _end(self, session: Session) -> None:
        """A connection has ended: what it was asked is answered first."""
        session.left = True
        if session.waits is None and not session.ended:
            session.ended = True
            self._end_writing(session)

    def _direct(self, node: Node, orders: SlotOrders) -> None:
        if orders.recoverable.generation == self.generation and node.active == self.generation:
            node.orders = orders
            self._free(node)

    def _stop_here(self, node: Node) -> None:
        node.active = 0
        for memory in node.memories:
            memory.table.retired = True
            memory.table.take_empty()
        self._free(node)

    # --- controller ------------------------------------------------------------------------------

    def _report(self, node: Node) -> None:
        own = [(key, False) for key in node.verified()]
        copies = {
            repr((key, replica)).encode(): Copy(
                node.name, key.generation, key.rank, key.step, replica, "h", 8, f"part-{key.rank}"
            )
            for key, replica in own + [(key, True) for key in node.replicas]
        }
        passed = []
        for memory in node.memories:
            step = told_as_passed(memory.table.left_out, memory.table.slots)
            if step is not None and memory.table.generation == self.generation:
                passed.append(PassedStep(self.generation, node.rank, step))
        self._later(WORD, partial(self._hear, node, copies, passed, self._turnover(node)))

    def _turnover(self, node: Node) -> Turnover | None:
        current = [memory.turnover for memory in node.memories if not memory.table.retired]
        return summarize_turnover(self.shape.slots, current)

    def _hear(
        self,
        node: Node,
        copies: dict[bytes, Copy],
        passed: list[PassedStep],
        turnover: Turnover | None,
    ) -> None:
        if node is not self.nodes[node.rank]:
            return  # it is lost
        self.catalogue.record_copies(node.name, copies, 0)
        self.catalogue.record_passed(passed)
        self.turnovers[node.name] = turnover
        self._decide()

    def _hear_rows(self, generation: int) -> None:
        if generation != self.generation:
            return
        for row in self._rows:
            self.job.ledger.steps.append(row)
        self.job.lineage.last_step = self._rows[-1].step
        self._rows = []

    def _decide(self) -> None:
        if self.stopping or self.doubtful:
            return
        names = [node.name for node in self.nodes]
        found = self.catalogue.recoverable(self.generation, names, self.size, (), self.dead)
        before = self.recoverable
        assert before is None or (found.step is not None and found.step >= before), "it goes back"
        self.recoverable, self.dead = found.step, found.dead_steps
        now_ns = self.now * TICK_NS
        self.phase = self.phase.after(found.step, found.dead_steps, now_ns)
        if self.hold is None:
            self.cadence = self.bring_together(now_ns)
        elif found.step is not None and found.step >= self.hold and self._to_come:
            self._stop()
            return
        if self.phase.looks_again_s is not None:
            self._later(_ticks(self.phase.looks_again_s), self._look_again)
        self._direct_all()

    def _look_again(self) -> None:
        if self.phase.apart_since_ns is not None and not self.stopping:
            self._decide()

    def _direct_all(self) -> None:
        recoverable = Recoverable(self.generation, self.recoverable, frozenset(self.dead))
        rule = CadenceRule(self.cadence.start, self.cadence.every)
        hold = None if self.hold is None else StepHold(self.generation, self.hold)
        for node in self.nodes:
            self._later(WORD, partial(self._hear_orders, node, rule, hold, recoverable))

    def _hear_orders(
        self, node: Node, rule: CadenceRule, hold: StepHold | None, recoverable: Recoverable
    ) -> None:
        cadence = node.orders.cadence.with_rule(recoverable.generation, rule)
        orders = SlotOrders(cadence, hold, recoverable)
        if orders != node.orders:
            self._direct(node, orders)

    def _stop(self) -> None:
        self.stopping = True
        for node in self.nodes:
            self._later(WORD, partial(self._stop_here, node))
        for process in self._current():
            self._later(WORD + DIES + process.rank, partial(self._die, process))
        self._later(WORD + DIES + self.size + 4 * MESSAGE, self._restart)

    def _die(self, process: Process) -> None:
        process.gone, process.writing = True, None
        if process.session is not None:
            self._later(MESSAGE, partial(self._end, process.session))

    def _restart(self) -> None:
        """Start the next generation from the step that the controller chooses."""
        for node in self.nodes:
            for memory in node.memories:
                taken = {slot.state for slot in memory.table.slots}
                assert taken <= {SlotState.VERIFIED}, "what nobody writes any more is free"
        told = self.recoverable
        reachable = {node.name: "address" for node in self.nodes}
        branch = [BranchPoint(1, None, self.size)]
        chosen = choose_step(self.catalogue, Question(branch, reachable, expected=False)).step
        assert told is None or (chosen is not None and chosen >= told), "what was safe is lost"
        if self.shape.fault is Fault.HOLD and self._is_saved_in_time(self.hold):
            assert chosen == self.hold, "a planned restart costs steps"
        if self.shape.fault is not Fault.NODE:
            assert chosen == max(set.intersection(*self.committed), default=None)
        self.restored = -1 if chosen is None else chosen
        self.disturbed = self.restored
        self.generation, self.restarts, self.stopping, self.doubtful = 2, 1, False, False
        self.committed = [set() for _ in self.nodes]
        self.dead, self.recoverable, self.hold = (), None, None
        self.phase, self.cadence = SnapshotPhase(), replace(self.cadence, start=0)
        self._rows, self.job.lineage.last_step = [], self.restored
        for node in self.nodes:
            node.orders = SlotOrders(AgentCadence(2), None, Recoverable(2))
        self._start(self.restored + 1)
        self._decide()

    # --- what goes wrong -------------------------------------------------------------------------

    def _go_wrong(self, fault: Fault) -> None:
        self._fault = None
        rank, process = self.shape.rank, self._current()[self.shape.rank]
        self.disturbed = max(self.disturbed, self.step)
        match fault:
            case Fault.REFUSED:
                self.refuses = rank
                self.disturbed = max(self.disturbed, self.step + 1)
            case Fault.DEATH:
                self._die(process)
                self._later(DEATH, self._stop)
            case Fault.NODE:
                self._lose_node(process)
            case Fault.ROLLBACK:
                self._stop()
            case Fault.ATTACH | Fault.ATTACH_LATE:
                self._leave_connection(process, late=fault is Fault.ATTACH_LATE)
            case _:
                self._plan(fault)

    def _lose_node(self, process: Process) -> None:
        rank = process.rank
        process.gone, process.writing, process.session = True, None, None
        self.nodes[rank] = Node(rank, self.nodes[rank].orders)
        self.doubtful = True
        self.catalogue.forget(self.nodes[rank].name)
        self._later(DEATH, self._stop)

    def _leave_connection(self, process: Process, *, late: bool) -> None:
        session, process.session = process.session, None
        self.disturbed = max(self.disturbed, self.step + 1)
        if session is not None:
            session.left = True
            self._later(STEP + COPY + 2 if late else MESSAGE, partial(self._end, session))
        asked = process.rank in self.inside and process.writing is None
        if asked:
            self._leave(process)

    def _plan(self, fault: Fault) -> None:
        near = fault is Fault.HOLD_NEAR
        newest = max(self.step, self.job.lineage.last_step or 0)
        self.hold = self.step if near else newest + margin(State(), self.job)
        self.disturbed = max(self.disturbed, self.hold)
        self._direct_all()
        if near:
            self._later(GIVES_UP, self._give_up)
        if fault is Fault.HOLD_DROPPED:
            ahead = self.hold - self.step
            self._later(STEP * (ahead + 1) + 5, self._drop)

    def _is_saved_in_time(self, step: int | None) -> bool:
        """Return whether all scripts save a step, and its copies are safe before ranks go on."""
        saved = not any(step in skips for skips in self.shape.skips)
        return saved and max(self.shape.told) * TICK_S < SLOT_WAIT_S / 2

    def bring_together(self, now_ns: int) -> Cadence:
        """Return the cadence, by which ranks meet that are out of phase."""
        told = [one for one in self.turnovers.values() if one is not None]
        slowest = max(told, key=lambda one: one.p99_ns, default=None)
        return bring_together(self.cadence, self.job, self.phase, slowest, now_ns)

    def _give_up(self) -> None:
        """Stop at a step that did not become recoverable in time."""
        if self.restarts == 0 and not self.stopping:
            self._stop()

    def _drop(self) -> None:
        self.hold = None
        self.disturbed = max(self.disturbed, self.step)
        self._decide()


_READ = (SlotState.COMMITTED, SlotState.VERIFIED)


def _place(process: Process) -> tuple[int, int]:
    number = -1 if process.session is None else process.session.number
    return number, process.reservations


def _is_connected(process: Process) -> bool:
    session = process.session
    return session is not None and not session.left and not session.ended


def _ticks(seconds: float) -> int:
    return round(seconds / TICK_S)
