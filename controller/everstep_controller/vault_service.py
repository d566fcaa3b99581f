"""What the vaults of the fleet hold, and what they shall do: one catalogue per job."""

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from everstep_controller.core.actions import ChooseRecoveryStep
from everstep_controller.core.events import KeeperChosen, RecoveryStepChosen
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.state import State
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.choosing import choose
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.snapshot_numbers import View, age_ns, snapshot_numbers
from everstep_controller.core.vault.snapshot_table import SnapshotNumbers
from everstep_controller.job_vault import JobVault
from everstep_controller.lessons import Lessons
from everstep_controller.prefetching import question, reachable
from everstep_controller.spares import spares_of
from everstep_controller.vault_messages import Report, Standbys
from everstep_controller.vault_news import Before, VaultNews, VaultPort

# Directing all members of a large job on each report would cost too much.
_REFRESH_S_PER_MEMBER = 0.0005
_REFRESH_S_MAX = 0.25


class VaultService:
    """Keeps the catalogues, directs the vaults, and chooses the step that a job goes back to."""

    def __init__(self, state: Callable[[], State], port: VaultPort) -> None:
        self._state = state
        self._port = port
        self._news = VaultNews(state, port)
        self._lessons = Lessons(port.teach)
        self._vaults: dict[str, JobVault] = {}

    def held(self, job: str, node: str) -> Mapping[bytes, Copy]:
        """Return what a node's last report of a job was, by the names of the copies."""
        vault = self._vaults.get(job)
        return {} if vault is None else vault.catalogue.held(node)

    def report(self, job: str, node: str, report: Report) -> None:
        """Take what a node says of a job."""
        vault = self._vault(job)
        vault.take(node, report)
        self._lessons.heard(job, report.lesson)
        if not vault.holders and job not in self._state().jobs:
            del self._vaults[job]
            return
        self._refresh_soon(job)
        self._try_choice(job)

    def connected(self, node: str, jobs: Iterable[str]) -> None:
        """A stream opened: jobs that its agent does not know have no copies there."""
        known = set(jobs)
        self._lessons.connected(node)
        for job, vault in self._vaults.items():
            vault.sent.pop(node, None)
            if job not in known:
                record = self._state().jobs.get(job)
                vault.catalogue.replace(node, (), record.generation if record else 0)
                vault.holders.discard(node)
                vault.stand_by(node, None)
            self._refresh_soon(job)
            self._try_choice(job)

    def look_at(self, node: str) -> None:
        """A node fell silent, or is heard again: a spare may have something to fetch."""
        for job, vault in self._vaults.items():
            if node in vault.members:
                self._refresh_soon(job)

    def forget_node(self, node: str) -> None:
        """A node is lost: nothing that it holds can be reached."""
        for job, vault in self._vaults.items():
            vault.forget(node)
            self._refresh_soon(job)
            self._try_choice(job)

    def choose(self, action: ChooseRecoveryStep) -> None:
        """Answer with RecoveryStepChosen as soon as all holders have settled or are lost."""
        self._vault(action.job).choice = action
        self._try_choice(action.job)

    def job_changed(self, job: str) -> None:
        """Something happened to a job: its ring or its end may follow."""
        record = self._state().jobs.get(job)
        if record is None:
            self._vaults.pop(job, None)
            self._lessons.forget(job)
            return
        if record.state is JobState.ENDED:
            self._lessons.forget(job)
            self._vault(job).end()
            return
        self._vault(job).adopt_plan(record, self._state())
        self._refresh_soon(job)

    # --- what is known ---------------------------------------------------------------------------

    def recoverable_step(self, job: str) -> int | None:
        """Return the newest step that is recoverable without any one node."""
        vault = self._vaults.get(job)
        return vault.recoverable.step if vault else None

    def recoverable_age_ns(self, job: str) -> int | None:
        """Return how long ago that step was made; None when there is none, or nobody knows."""
        record, step = self._state().jobs.get(job), self.recoverable_step(job)
        if record is None or step is None:
            return None
        return age_ns(record, step, self._port.now_ns())

    def view(self, job: str) -> View | None:
        """Return what is known of a job's snapshots now; None for no job."""
        record = self._state().jobs.get(job)
        if record is None:
            return None
        vault = self._vaults.get(job) or JobVault(job)
        return vault.view(record, self._state(), self._reachable(), self._port.now_ns())

    def numbers(self, job: str) -> SnapshotNumbers | None:
        """Return what can be said of a job's snapshots in numbers; None for no job."""
        view = self.view(job)
        return None if view is None else snapshot_numbers(view)

    def copies(self, job: str) -> Iterable[Copy]:
        """Yield the single copies of a job, newest step first."""
        vault = self._vaults.get(job)
        return vault.catalogue.copies() if vault else ()

    def memory_bytes(self, job: str) -> Counter[str]:
        """Return how much memory each node has in use for a job's snapshots."""
        vault = self._vaults.get(job)
        return vault.catalogue.memory_bytes() if vault else Counter()

    def standbys(self, job: str) -> Mapping[str, Standbys]:
        """Return what waits on each node to become ranks of a job."""
        vault = self._vaults.get(job)
        return vault.standbys if vault else {}

    # --- directives ------------------------------------------------------------------------------

    def _vault(self, job: str) -> JobVault:
        return self._vaults.setdefault(job, JobVault(job))

    def _refresh_soon(self, job: str) -> None:
        vault = self._vaults[job]
        if not vault.refresh_waits:
            vault.refresh_waits = True
            delay_s = min(_REFRESH_S_MAX, (len(vault.members) - 16) * _REFRESH_S_PER_MEMBER)
            self._port.later(max(0.0, delay_s), lambda: self._refresh(job))

    def _refresh(self, job: str) -> None:
        vault = self._vaults.get(job)
        if vault is None:
            return
        vault.refresh_waits = False
        record, state = self._state().jobs.get(job), self._state()
        if record is not None:
            # After a restart nothing else may ever tell of a generation that just runs on.
            vault.adopt_plan(record, state)
        if not vault.members or record is None:
            return
        vault.adopt_cadence(record)
        before, keeper = Before(vault.recoverable.step, vault.cadence), vault.keeper
        vault.refresh(record, state, self._port.now_ns())
        if vault.keeper not in ("", keeper):
            # Before it can hold anything.
            self._port.post(KeeperChosen(job, vault.keeper))
        self._direct_all(vault)
        if record.state in ACTIVE:
            self._lessons.tell(job, spares_of(record))
        self._news.tell(vault, record, before)

    def _direct_all(self, vault: JobVault) -> None:
        directed = vault.directed()
        for node in sorted(directed):
            self._direct(vault, node)
        # Whoever comes back as a spare knows nothing of what it was told before.
        for node in vault.sent.keys() - directed:
            del vault.sent[node]

    def _direct(self, vault: JobVault, node: str) -> None:
        directive = vault.directive(node)
        if vault.sent.get(node) != directive and self._port.direct(node, directive):
            vault.sent[node] = directive

    # --- choices ---------------------------------------------------------------------------------

    def _reachable(self) -> dict[str, str]:
        return reachable(self._state())

    def _try_choice(self, job: str) -> None:
        vault = self._vaults[job]
        action = vault.choice
        if action is None or not self._all_have_spoken(action, vault.catalogue):
            return
        vault.choice = None
        choice = choose(vault.catalogue, question(action, self._reachable()))
        self._port.post(
            RecoveryStepChosen(
                job=job,
                generation=action.generation,
                step=choice.step,
                sources=choice.sources,
                lost=choice.lost,
                reason=choice.reason,
                step_generation=choice.generation,
                stored=choice.stored,
                tier=choice.tier,
            )
        )

    def _all_have_spoken(self, action: ChooseRecoveryStep, catalogue: Catalogue) -> bool:
        nodes = self._state().nodes
        needed = dict.fromkeys(action.others, 0) | dict.fromkeys(
            action.holders, action.settled_generation
        )
        return all(
            name not in nodes or nodes[name].gone or catalogue.settled(name) >= generation
            for name, generation in needed.items()
        )


def transfer_key(secret: bytes, job: str) -> bytes:
    """Return the key for bulk transfers of a job between agents, the same after a restart."""
    return hmac.new(secret, f"bulk transfer {job}".encode(), hashlib.sha256).digest()
