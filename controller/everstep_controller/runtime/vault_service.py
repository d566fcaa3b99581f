"""Vault service: feeds the core with the agents' vault reports, and sends out its directives.

What nodes hold belongs to a lineage: to the newest job that goes on from it. A job may be called by
its id or name here, and a lineage by its own id, which is that of the job with which it began.

While the controller is halted the service only listens: agents free memory among themselves then,
and what an old journal knows must not be told beside that. It goes on as agents connect anew.
"""

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from everstep_common.preload import Preload
from everstep_common.reports import Standbys
from everstep_controller.core.actions import ChooseRecoveryStep
from everstep_controller.core.events import Event
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import JobRecord, JobState
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
    preload: Preload
    # Nodes that have been told these imports.
    told: set[str] = field(default_factory=set)


class SparePreloads:
    """Imports of all jobs' ranks; each spare gets them once, and again when they change."""

    def __init__(self, send: Callable[[str, str, Preload], bool]) -> None:
        """``send`` is called with node, job and preload, and returns whether the node is there."""
        self._send = send
        self._known: dict[str, _Known] = {}

    def heard(self, job: str, preload: Preload | None) -> None:
        """A node tells what its ranks have loaded; None: nothing new."""
        known = self._known.get(job)
        if preload is not None and (known is None or known.preload != preload):
            self._known[job] = _Known(preload)

    def send_to_spares(self, job: str, spares: Collection[str]) -> None:
        """Have these nodes know it."""
        known = self._known.get(job)
        if known is None:
            return
        known.told.intersection_update(spares)  # who comes back may have a new launcher
        for node in spares:
            if node not in known.told and self._send(node, job, known.preload):
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

    def send_preload(self, node: str, job: str, preload: Preload) -> bool:
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
class _Lineage:
    """One lineage: its snapshots, the news told of it, and the directives sent to its nodes."""

    id: str
    snapshots: JobSnapshots
    news: VaultNews = field(default_factory=VaultNews)
    # By node, the newest directive that it was sent.
    sent: dict[str, Directive] = field(default_factory=dict)
    # A timer for the next decision runs.
    refresh_waits: bool = False
    # A timer runs, after which the core is told of the recoverable step if it does not know it.
    telling: bool = False
    # A timer runs for another decision, because ranks are out of phase.
    looks_again: bool = False


class VaultService:
    """Vault service: keeps the nodes' reports, directs vaults, answers which step to restore."""

    def __init__(self, state: Callable[[], State], port: VaultPort) -> None:
        self._state = state
        self._port = port
        self._preloads = SparePreloads(self._send_preload)
        self._lineages: dict[str, _Lineage] = {}

    def held(self, lineage: str, node: str) -> Mapping[bytes, Copy]:
        """Return what a node's last report of a lineage was, by the names of the copies."""
        known = self._lineages.get(self._lineage_id(lineage))
        return {} if known is None else known.snapshots.holdings.catalogue.held(node)

    def report(self, lineage: str, node: str, report: NodeHoldings) -> None:
        """Take what a node says of a lineage."""
        known = self._known_or_new(lineage)
        known.snapshots.record_report(node, report)
        self._preloads.heard(known.id, report.preload)
        if not known.snapshots.holdings.holders and self._job_of(known) is None:
            del self._lineages[known.id]
            return
        self._follow(known)

    def connected(self, node: str, lineages: Iterable[str]) -> None:
        """A stream opened: lineages that its agent does not know have no copies there.

        Of the others it tells at once what it has, which may be less than before.
        """
        told = set(map(self._lineage_id, lineages))
        self._preloads.connected(node)
        for known in self._lineages.values():
            known.sent.pop(node, None)
            if known.id in told:
                known.snapshots.holdings.catalogue.unsettle(node)
            else:
                record = self._job_of(known)
                known.snapshots.holdings.clear(node, record.generation.number if record else 0)
            self._follow(known)

    def refresh_jobs_of(self, node: str) -> None:
        """A node fell silent, or is heard again: its jobs fetch ahead, or wait for no slots."""
        for known in self._lineages.values():
            if node in known.snapshots.generation.members:
                self._refresh_soon(known)

    def forget_node(self, node: str) -> None:
        """A node is lost: nothing that it holds can be reached."""
        for known in self._lineages.values():
            known.snapshots.holdings.forget(node)
            self._follow(known)

    def choose(self, action: ChooseRecoveryStep) -> None:
        """Answer with RecoveryStepChosen as soon as all holders have settled or are lost."""
        known = self._known_or_new(action.job)
        known.snapshots.asked = action
        self._answer(known)

    def job_changed(self, job: str) -> None:
        """Something happened to a job: its ring or its end may follow."""
        record = self._state().job(job)
        if record is None or record.after:
            return  # it is forgotten, or has not begun: nobody knows yet what it goes on from
        known = self._known_or_new(record.lineage_id)
        if self._job_of(known) is not record:
            newest = self._state().job_of_lineage(known.id)
            if newest is not record:
                return  # what is left of it is the next job's
            known.snapshots.job = record.id
        if record.state is JobState.ENDED:
            self._preloads.forget(known.id)
            known.snapshots.end()
            known.sent.clear()
            return
        known.snapshots.adopt(record, self._state())
        self._refresh_soon(known)

    # --- what is known ---------------------------------------------------------------------------

    def recoverable_step(self, job: str) -> int | None:
        """Return the newest step that is recoverable without any one node."""
        known, record = self._known(job), self._state().job(job)
        return known.snapshots.restorable_step(record) if known and record else None

    def recoverable_age_ns(self, job: str) -> int | None:
        """Return how long ago that step was made; None when there is none, or nobody knows."""
        record, step = self._state().job(job), self.recoverable_step(job)
        if record is None or step is None:
            return None
        return age_ns(record, step, self._port.now_ns())

    def view(self, job: str) -> SnapshotView | None:
        """Return what is known of a job's snapshots now; None for no job."""
        state = self._state()
        record, known = state.job(job), self._known(job)
        if record is None:
            return None
        snapshots = JobSnapshots(job) if known is None else known.snapshots
        catalogue = snapshots.holdings.catalogue
        return SnapshotView(
            record,
            catalogue,
            reachable_nodes(state, catalogue),
            snapshots.orders.restorable_step,
            snapshots.persistence,
            snapshots.orders.cadence,
            snapshots.holdings.slowest_turnover(snapshots.generation.members),
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
        known = self._known(job)
        return known.snapshots.holdings.catalogue.copies() if known else ()

    def memory_bytes(self, job: str) -> Counter[str]:
        """Return how much memory each node has in use for a job's snapshots."""
        known = self._known(job)
        return known.snapshots.holdings.catalogue.memory_bytes() if known else Counter()

    def standbys(self, job: str) -> Mapping[str, Standbys]:
        """Return what waits on each node to become ranks of a job."""
        known = self._known(job)
        return known.snapshots.holdings.standbys if known else {}

    # ---------------------------------------------------------------------------------------------

    def _lineage_id(self, job: str) -> str:
        record = self._state().job(job)
        return job if record is None else record.lineage_id

    def _known(self, job: str) -> _Lineage | None:
        """Return the lineage of a job; None where another one has gone on from it since."""
        record, known = self._state().job(job), self._lineages.get(self._lineage_id(job))
        if known is None or record is None:
            return known
        return known if self._job_of(known) is record else None

    def _known_or_new(self, job: str) -> _Lineage:
        lineage_id = self._lineage_id(job)
        known = self._lineages.get(lineage_id)
        if known is None:
            self._drop_forgotten()
            known = self._lineages[lineage_id] = _Lineage(lineage_id, JobSnapshots(""))
        return known

    def _drop_forgotten(self) -> None:
        """Drop the lineages whose jobs are forgotten, and of which no node has anything."""
        for known in list(self._lineages.values()):
            if not known.snapshots.holdings.holders and self._job_of(known) is None:
                del self._lineages[known.id]
                self._preloads.forget(known.id)

    def _send_preload(self, node: str, lineage: str, preload: Preload) -> bool:
        return self._port.send_preload(node, self._lineages[lineage].snapshots.job, preload)

    def _job_of(self, known: _Lineage) -> JobRecord | None:
        """Return the newest job of a lineage; as a rule it is the one that was so before."""
        state = self._state()
        record = state.jobs.get(known.snapshots.job)
        if record is None or record.lineage_id != known.id:
            record = state.job_of_lineage(known.id)
            known.snapshots.job = known.snapshots.job if record is None else record.id
        return record

    def _follow(self, known: _Lineage) -> None:
        self._refresh_soon(known)
        self._answer(known)

    def _answer(self, known: _Lineage) -> None:
        if self._state().halted:
            return
        answer = known.snapshots.choose_step(self._state())
        if answer is not None:
            self._port.post(answer)

    def _refresh_soon(self, known: _Lineage) -> None:
        if not known.refresh_waits:
            known.refresh_waits = True
            members = len(known.snapshots.generation.members)
            delay_s = min(_REFRESH_S_MAX, (members - 16) * _REFRESH_S_PER_MEMBER)
            self._port.later(max(0.0, delay_s), lambda: self._refresh(known))

    def _refresh(self, known: _Lineage) -> None:
        known.refresh_waits = False
        record, state = self._job_of(known), self._state()
        if state.halted or record is None or self._lineages.get(known.id) is not known:
            return
        snapshots = known.snapshots
        # After a restart nothing else may ever tell of a generation that just runs on.
        snapshots.adopt(record, state)
        if not snapshots.generation.members:
            return
        decision = snapshots.decide(record, state, self._port.now_ns())
        for news in known.news.since(decision, snapshots, record):
            if isinstance(news, Message):
                self._port.announce(record.name, news.reason, news.sentence)
            else:
                self._port.post(news)
        self._direct(known)
        if record.state in ACTIVE:
            self._preloads.send_to_spares(known.id, spares_of(record))
        self._tell_recoverable(known)
        self._look_again(known)

    def _look_again(self, known: _Lineage) -> None:
        """Decide again soon where ranks are out of phase: they may have no slot to tell of."""
        delay_s = known.snapshots.orders.looks_again_s
        if delay_s is not None and not known.looks_again:
            known.looks_again = True
            self._port.later(delay_s, lambda: self._refresh_again(known))

    def _refresh_again(self, known: _Lineage) -> None:
        known.looks_again = False
        self._refresh_soon(known)

    def _direct(self, known: _Lineage) -> None:
        directed = set[str]()
        for node, directive in known.snapshots.directives():
            directed.add(node)
            if known.sent.get(node) != directive and self._port.direct(node, directive):
                known.sent[node] = directive
        # A node that comes back as a spare has forgotten what it was told before.
        for node in known.sent.keys() - directed:
            del known.sent[node]

    def _tell_recoverable(self, known: _Lineage, *, late: bool = False) -> None:
        """Have the core know it soon: the next row of progress says it, where one comes."""
        snapshots = known.snapshots
        record = self._job_of(known)
        untold = None if record is None else snapshots.untold(record)
        if untold is None:
            return
        if late or snapshots.orders.held_at(untold.step):
            self._port.post(untold)
        elif not known.telling:
            known.telling = True
            self._port.later(_UNTOLD_S, lambda: self._tell_late(known))

    def _tell_late(self, known: _Lineage) -> None:
        known.telling = False
        if not self._state().halted:
            self._tell_recoverable(known, late=True)


def transfer_key(secret: bytes, lineage_id: str) -> bytes:
    """Return the key for bulk transfers between agents of the jobs of a lineage, ever the same."""
    return hmac.new(secret, f"bulk transfer {lineage_id}".encode(), hashlib.sha256).digest()
