"""Simulated controller: a journal that survives its crashes, and a core rebuilt from it."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.groups import Group
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.settings import Settings
from everstep_controller.journal.codec import encode
from everstep_sim.clocks import ControllerTimeline
from everstep_sim.disk import DAMAGED, JournalDisk
from everstep_sim.index_check import check_index
from everstep_sim.outbox import OutboxRecord

Journal = list[tuple[events.Event, int]]
# Id of the simulated cluster.
CLUSTER = "cluster"
Check = Callable[[Core, events.Event, int], None]


# How often a disk that takes nothing is asked whether it does again, as the journal's thread does.
PROBE_S = 1.0


class Taken(Enum):
    """What has become of an agent's record."""

    YES = auto()
    # It is journaled, and the controller was killed before it said so.
    KILLED = auto()
    # It could not be journaled.
    REFUSED = auto()
    # Nobody was there to take it.
    LOST = auto()


def fold(journal: Journal) -> Core:
    """Return the core that a journal folds to."""
    core = Core()
    for event, now_ns in journal:
        core.handle(event, now_ns)
    return core


@dataclass(slots=True)
class SimulatedController:
    """Journals, handles, acts, in that order; it may be killed between any two of them."""

    settings: Settings
    timeline: ControllerTimeline
    rng: random.Random
    dispatch: Callable[[actions.Action], None]
    check: Check
    journal: Journal = field(default_factory=list)
    core: Core = field(default_factory=Core)
    # The newest term in the cluster file; it is lost with no journal.
    cluster_term: int = 0
    up: bool = False
    # It stands still: what comes meanwhile waits in its sockets, and timers are late.
    stalled: bool = False
    backlog: list[tuple[events.Event, bool]] = field(default_factory=list)
    overdue: list[Callable[[], None]] = field(default_factory=list)
    # Chance to be killed after an event was journaled, before all of its actions were sent.
    crash_chance: float = 0.0
    crashed: Callable[[], None] = lambda: None
    # What else starts from scratch with the process, and what looks at the state after each event.
    started: Callable[[], None] = lambda: None
    followed: Callable[[events.Event, Sequence[actions.Action]], None] = lambda event, done: None
    sent: dict[str, actions.Action] = field(default_factory=dict)
    # Name of the machine that it runs on, which may be a node's; "": nobody knows it.
    machine: str = ""
    # Names of the isolation drivers.
    drivers: tuple[str, ...] = ()
    groups: Mapping[str, Group] = field(default_factory=dict)
    # Where the journal lies; None: it cannot fail. And what its start says that finds damage.
    disk: JournalDisk | None = None
    damaged: Callable[[str], None] = lambda sentence: None
    # Who has ordered that the next one that starts rebuilds its journal; "": nobody.
    recover_by: str = ""
    # How many records came that it had.
    repeated: int = 0
    # How far each outbox was taken by this process.
    _accepted: dict[str, int] = field(default_factory=dict)
    _postponed: list[events.Event] = field(default_factory=list)

    @property
    def listens(self) -> bool:
        """Whether what is said to it is taken at once."""
        return self.up and not self.stalled

    @property
    def full(self) -> bool:
        """Whether its journal takes nothing now."""
        return self.disk is not None and self.disk.full

    @property
    def now_ns(self) -> int:
        """Return the time on its timeline."""
        return self.timeline.now_ns

    def start(self) -> None:
        """Replay the journal, begin a term, and send whatever is due."""
        core = self._load()
        if core is None:
            return
        self.core, self.up = core, True
        self._accepted, self._postponed = {}, []
        state, last_ns = self.core.state, self.journal[-1][1] if self.journal else -1
        job_runs = any(job.state is not JobState.ENDED for job in state.jobs.values())
        self.timeline.start(len(self.journal), last_ns, job_runs=job_runs)
        self.started()
        if not state.cluster_id or self.cluster_term > state.term:
            self.submit(events.ClusterNamed(CLUSTER, self.cluster_term))
        self.submit(events.ControllerStarted("0.1.0", self.machine))
        if self.up and state.halted:
            timers = state.timers.items()
            self._send([actions.SetTimer(id="", timer=name, at_ns=at_ns) for name, at_ns in timers])
        self.cluster_term = max(self.cluster_term, state.term)
        configured = self.settings, self.drivers, self.groups
        if self.up and (state.settings, tuple(state.drivers), state.groups) != configured:
            self.submit(events.SettingsApplied(*configured))
        if self.up and self.recover_by:
            self.submit(events.RecoveryBegun(self.recover_by))
            if self.core.state.recovering:  # it is journaled; else the next start orders it
                self.recover_by = ""
        if self.up:
            self._send(self.core.due(self.now_ns))

    def post(self, event: events.Event) -> None:
        """Submit an event that nobody tells again: it is kept while nothing can be journaled."""
        self.submit(event, again=True)

    def submit(self, event: events.Event, *, again: bool = False) -> bool:
        """Journal an event and act on it; return whether it was acknowledged."""
        if self.up and self.stalled:
            self.backlog.append((event, again))
        if not self.listens:
            return False
        event, now_ns = self.timeline.map_times(event), self.now_ns
        if self.disk is not None and not self.disk.append(event, now_ns):
            self._refuse(event, again=again)
            return False
        self.journal.append((event, now_ns))
        called_for = self.core.handle(event, now_ns)
        check_index(self.core.state, event, len(self.journal))
        self.check(self.core, event, now_ns)
        self._send(called_for)
        if self.up:
            self.followed(event, called_for)
        if self.up and self.disk is not None:
            self.disk.keep_state(self.core, now_ns)
        return self.up

    def take_record(self, outbox: str, record: OutboxRecord) -> Taken:
        """Take an agent's record, unless this process or the journal has it."""
        known = self._accepted.get(outbox) or self.core.state.outboxes.get(outbox, 0)
        if record.sequence <= known:
            self.repeated += 1
            return Taken.YES
        if not self.listens:
            return Taken.LOST
        journaled = len(self.journal)
        if self.submit(record.event):
            self._accepted[outbox] = record.sequence
            return Taken.YES
        return Taken.KILLED if len(self.journal) > journaled else Taken.REFUSED

    def _load(self) -> Core | None:
        """Return the core that the journal folds to; None where it is damaged, and says so."""
        if self.disk is None:
            return fold(self.journal)
        try:
            core, count = self.disk.load()
        except DAMAGED as error:
            self.damaged(str(error))
            return None
        # A changed bit in its newest transaction looks like the end that a crash has torn.
        assert len(self.journal) - count in (0, 1), (len(self.journal), count)
        del self.journal[count:]
        told = encode(core.state), encode(fold(self.journal).state)
        assert told[0] == told[1], "another state was loaded, and nobody was told"
        return core

    def _refuse(self, event: events.Event, *, again: bool) -> None:
        """Keep what nobody tells again, as the shell does while its journal takes nothing."""
        if isinstance(event, events.ControllerStarted | events.ClusterNamed):
            self.kill()  # a start that cannot be journaled ends, and is tried again
            self.crashed()
        elif again:
            self._postponed.append(event)

    def probe(self) -> None:
        """Look whether the disk takes something again, and tell what has waited for that."""
        if self.disk is None or not self.up or not self.disk.recovers():
            return
        postponed, self._postponed = self._postponed, []
        for event in postponed:
            self.post(event)

    def kill(self) -> None:
        """End the process; only the journal is left."""
        self.up = self.stalled = False
        if self.disk is not None:
            self.disk.kill()
        self.backlog.clear()
        self.overdue.clear()

    def resume(self) -> None:
        """Send whatever is due, as the controller acts again."""
        self._send(self.core.due(self.now_ns))

    def go_on(self) -> None:
        """Take what has waited in the sockets."""
        self.stalled = False
        waiting, self.backlog = self.backlog, []
        for event, again in waiting:
            self.submit(event, again=again)

    def _send(self, called_for: list[actions.Action]) -> None:
        for action in called_for:
            if self.crash_chance and self.rng.random() < self.crash_chance:
                self.kill()
                self.crashed()
                return
            self._same_as_before(action)
            self.dispatch(action)

    def _same_as_before(self, action: actions.Action) -> None:
        """Fail when one id stands for two different generations' orders."""
        if isinstance(action, actions.StartGeneration):
            before = self.sent.setdefault(action.id, action)
            if before != action:
                raise AssertionError(f"{action.id} was sent with two meanings")
