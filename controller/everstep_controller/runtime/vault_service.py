"""Vault service: feeds the core with the agents' vault reports, and sends out its directives.

What nodes hold goes by the name of a job, for the next one of the name may continue it: ``job`` is
a name here, and the branch of the newest job says which of the copies count.
"""

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from everstep_common.lessons import Lesson
from everstep_common.reports import Standbys
from everstep_controller.core.actions import ChooseRecoveryStep
from everstep_controller.core.events import Event
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.state import State
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.directives import JobSnapshots, Message, VaultNews
from everstep_controller.core.vault.messages import Directive, NodeHoldings
from everstep_controller.core.vault.recovery_step import reachable_nodes
from everstep_controller.core.vault.snapshot_table import (
    SnapshotNumbers,
    SnapshotView,
    age_ns,
    count_snapshots,
)
from everstep_controller.core.vault.spares import spares_of


@dataclass(slots=True)
class _Known:
    lesson: Lesson
    # Nodes that have been told these imports.
    told: set[str] = field(default_factory=set)


class ImportLessons:
    """Imports of all jobs' ranks; each spare is told once, and again when they change."""

    def __init__(self, send: Callable[[str, str, Lesson], bool]) -> None:
        """``send`` is called with node, job and lesson, and returns whether the node is there."""
        self._send = send
        self._known: dict[str, _Known] = {}

    def heard(self, job: str, lesson: Lesson | None) -> None:
        """A node tells what its ranks have loaded; None: nothing new."""
        known = self._known.get(job)
        if lesson is not None and (known is None or known.lesson != lesson):
            self._known[job] = _Known(lesson)

    def send_to_spares(self, job: str, spares: Collection[str]) -> None:
        """Have these nodes know it."""
        known = self._known.get(job)
        if known is None:
            return
        known.told.intersection_update(spares)  # who comes back may have a new launcher
        for node in spares:
            if node not in known.told and self._send(node, job, known.lesson):
                known.told.add(node)

    def connected(self, node: str) -> None:
        """A stream opened: its agent may know nothing."""
        for known in self._known.values():
            known.told.discard(node)

    def forget(self, job: str) -> None:
        """The job is over."""
        self._known.pop(job, None)


# Directing all members of a large job on each report would cost too much.
_REFRESH_S_PER_MEMBER = 0.0005
_REFRESH_S_MAX = 0.25
# A row of progress stands for a second: what none has told after two, none will tell soon.
_UNTOLD_S = 2.0


class VaultPort(Protocol):
    """Interface of the vault service to nodes, core, people and time."""

    def direct(self, node: str, directive: Directive) -> bool:
        """Send a directive; return whether the node is connected."""
        ...

    def teach(self, node: str, job: str, lesson: Lesson) -> bool:
        """Tell a node what ranks of a job load; return whether it is connected."""
        ...

    def post(self, event: Event) -> None:
        """Journal an event and hand it to the core."""
        ...

    def announce(self, subject: str, reason: str, message: str) -> None:
        """Tell people."""
        ...

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call back after a while."""
        ...

    def now_ns(self) -> int:
        """Return the time on the controller's timeline."""
        ...


@dataclass(slots=True)
class _Job:
    """One job: its snapshots, the news told of it, and the directives sent to its nodes."""

    snapshots: JobSnapshots
    news: VaultNews = field(default_factory=VaultNews)
    # By node, the newest directive that it was sent.
    sent: dict[str, Directive] = field(default_factory=dict)
    # A timer for the next decision runs.
    refresh_waits: bool = False
    # A timer runs, after which the core is told of the recoverable step if it does not know it.
    telling: bool = False


class VaultService:
    """Vault service: keeps the nodes' reports, directs vaults, answers which step to restore."""

    def __init__(self, state: Callable[[], State], port: VaultPort) -> None:
        self._state = state
        self._port = port
        self._lessons = ImportLessons(port.teach)
        self._jobs: dict[str, _Job] = {}

    def held(self, job: str, node: str) -> Mapping[bytes, Copy]:
        """Return what a node's last report of a job was, by the names of the copies."""
        known = self._jobs.get(job)
        return {} if known is None else known.snapshots.holdings.catalogue.held(node)

    def report(self, job: str, node: str, report: NodeHoldings) -> None:
        """Take what a node says of a job."""
        snapshots = self._job(job).snapshots
        snapshots.record_report(node, report)
        self._lessons.heard(job, report.lesson)
        if not snapshots.holdings.holders and job not in self._state().names:
            del self._jobs[job]
            return
        self._follow(job)

    def connected(self, node: str, jobs: Iterable[str]) -> None:
        """A stream opened: jobs that its agent does not know have no copies there."""
        told = set(jobs)
        self._lessons.connected(node)
        for job, known in self._jobs.items():
            known.sent.pop(node, None)
            if job not in told:
                record = self._state().job(job)
                known.snapshots.holdings.clear(node, record.generation.number if record else 0)
            self._follow(job)

    def refresh_spares_of(self, node: str) -> None:
        """A node fell silent, or is heard again: a spare may have something to fetch."""
        for job, known in self._jobs.items():
            if node in known.snapshots.generation.members:
                self._refresh_soon(job)

    def forget_node(self, node: str) -> None:
        """A node is lost: nothing that it holds can be reached."""
        for job, known in self._jobs.items():
            known.snapshots.holdings.forget(node)
            self._follow(job)

    def choose(self, action: ChooseRecoveryStep) -> None:
        """Answer with RecoveryStepChosen as soon as all holders have settled or are lost."""
        self._job(action.job).snapshots.asked = action
        self._answer(action.job)

    def job_changed(self, job: str) -> None:
        """Something happened to a job: its ring or its end may follow."""
        record = self._state().job(job)
        if record is None:
            self._jobs.pop(job, None)
            self._lessons.forget(job)
            return
        known = self._job(job)
        if record.state is JobState.ENDED:
            self._lessons.forget(job)
            known.snapshots.end()
            known.sent.clear()
            return
        known.snapshots.adopt(record, self._state())
        self._refresh_soon(job)

    # --- what is known ---------------------------------------------------------------------------

    def recoverable_step(self, job: str) -> int | None:
        """Return the newest step that is recoverable without any one node."""
        known = self._jobs.get(job)
        return known.snapshots.orders.recoverable.step if known else None

    def recoverable_age_ns(self, job: str) -> int | None:
        """Return how long ago that step was made; None when there is none, or nobody knows."""
        record, step = self._state().job(job), self.recoverable_step(job)
        if record is None or step is None:
            return None
        return age_ns(record, step, self._port.now_ns())

    def view(self, job: str) -> SnapshotView | None:
        """Return what is known of a job's snapshots now; None for no job."""
        state = self._state()
        record, known = state.job(job), self._jobs.get(job)
        if record is None:
            return None
        snapshots = JobSnapshots(job) if known is None else known.snapshots
        catalogue = snapshots.holdings.catalogue
        return SnapshotView(
            record,
            catalogue,
            reachable_nodes(state, catalogue),
            snapshots.orders.recoverable.step,
            snapshots.persistence,
            snapshots.orders.cadence,
            snapshots.holdings.bad_copies,
            state.settings.probation_steps,
            self._port.now_ns(),
        )

    def numbers(self, job: str) -> SnapshotNumbers | None:
        """Return what can be said of a job's snapshots in numbers; None for no job."""
        view = self.view(job)
        return None if view is None else count_snapshots(view)

    def copies(self, job: str) -> Iterable[Copy]:
        """Yield the single copies of a job, newest step first."""
        known = self._jobs.get(job)
        return known.snapshots.holdings.catalogue.copies() if known else ()

    def memory_bytes(self, job: str) -> Counter[str]:
        """Return how much memory each node has in use for a job's snapshots."""
        known = self._jobs.get(job)
        return known.snapshots.holdings.catalogue.memory_bytes() if known else Counter()

    def standbys(self, job: str) -> Mapping[str, Standbys]:
        """Return what waits on each node to become ranks of a job."""
        known = self._jobs.get(job)
        return known.snapshots.holdings.standbys if known else {}

    # ---------------------------------------------------------------------------------------------

    def _job(self, job: str) -> _Job:
        known = self._jobs.get(job)
        if known is None:
            known = self._jobs[job] = _Job(JobSnapshots(job))
        return known

    def _follow(self, job: str) -> None:
        self._refresh_soon(job)
        self._answer(job)

    def _answer(self, job: str) -> None:
        answer = self._jobs[job].snapshots.choose_step(self._state())
        if answer is not None:
            self._port.post(answer)

    def _refresh_soon(self, job: str) -> None:
        known = self._jobs[job]
        if not known.refresh_waits:
            known.refresh_waits = True
            members = len(known.snapshots.generation.members)
            delay_s = min(_REFRESH_S_MAX, (members - 16) * _REFRESH_S_PER_MEMBER)
            self._port.later(max(0.0, delay_s), lambda: self._refresh(job))

    def _refresh(self, job: str) -> None:
        known = self._jobs.get(job)
        if known is None:
            return
        known.refresh_waits = False
        record, state = self._state().job(job), self._state()
        if record is None:
            return
        snapshots = known.snapshots
        # After a restart nothing else may ever tell of a generation that just runs on.
        snapshots.adopt(record, state)
        if not snapshots.generation.members:
            return
        decision = snapshots.decide(record, state, self._port.now_ns())
        for news in known.news.since(decision, snapshots, record):
            if isinstance(news, Message):
                self._port.announce(job, news.reason, news.sentence)
            else:
                self._port.post(news)
        self._direct(known)
        if record.state in ACTIVE:
            self._lessons.send_to_spares(job, spares_of(record))
        self._tell_recoverable(known)

    def _direct(self, known: _Job) -> None:
        directed = set[str]()
        for node, directive in known.snapshots.directives():
            directed.add(node)
            if known.sent.get(node) != directive and self._port.direct(node, directive):
                known.sent[node] = directive
        # A node that comes back as a spare has forgotten what it was told before.
        for node in known.sent.keys() - directed:
            del known.sent[node]

    def _tell_recoverable(self, known: _Job, *, late: bool = False) -> None:
        """Have the core know it soon: the next row of progress says it, where one comes."""
        snapshots = known.snapshots
        record = self._state().job(snapshots.job)
        untold = None if record is None else snapshots.untold(record)
        if untold is None:
            return
        if late or snapshots.orders.held_at(untold.step):
            self._port.post(untold)
        elif not known.telling:
            known.telling = True
            self._port.later(_UNTOLD_S, lambda: self._tell_late(known))

    def _tell_late(self, known: _Job) -> None:
        known.telling = False
        self._tell_recoverable(known, late=True)


def transfer_key(secret: bytes, lineage_id: str) -> bytes:
    """Return the key for bulk transfers between agents of the jobs of a lineage, ever the same."""
    return hmac.new(secret, f"bulk transfer {lineage_id}".encode(), hashlib.sha256).digest()
