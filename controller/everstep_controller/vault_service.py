"""What the vaults of the fleet hold, and what they shall do: one catalogue per job."""

import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from everstep_controller.core.actions import ChooseRecoveryStep
from everstep_controller.core.catalogue import Catalogue, Copy, Recoverable
from everstep_controller.core.events import Event, LayoutLearned, RecoveryStepChosen
from everstep_controller.core.job_lifecycle import ACTIVE
from everstep_controller.core.state import JobRecord, JobState, State
from everstep_controller.replica_ring import replica_targets


@dataclass(frozen=True, slots=True)
class Directive:
    """What the vault of one node shall do for one job."""

    job: str
    generation: int
    recoverable_step: int | None
    dead_steps: tuple[int, ...]
    replica_target: str


class VaultPort(Protocol):
    """How the service reaches nodes and core."""

    def direct(self, node: str, directive: Directive) -> bool:
        """Send a directive; return whether the node is connected."""
        ...

    def post(self, event: Event) -> None:
        """Journal an event and hand it to the core."""
        ...

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call back after a while."""
        ...


@dataclass(slots=True)
class _Vault:
    """What is known of one job's snapshots."""

    catalogue: Catalogue = field(default_factory=Catalogue)
    holders: set[str] = field(default_factory=set)
    # The generation that runs or ran last: its ring stays until the next one starts.
    generation: int = 0
    members: tuple[str, ...] = ()
    targets: Mapping[str, str] = field(default_factory=dict)
    world_size: int = 0
    recoverable: Recoverable = field(default_factory=lambda: Recoverable(None, ()))
    layout_told: int = -1
    choice: ChooseRecoveryStep | None = None
    refresh_waits: bool = False
    sent: dict[str, Directive] = field(default_factory=dict)


# Computing over all copies of a job on each report would cost a large job too much.
_REFRESH_S_PER_MEMBER = 0.0005
_REFRESH_S_MAX = 0.25


class VaultService:
    """Keeps the catalogues, directs the vaults, and chooses the step that a job goes back to."""

    def __init__(self, state: Callable[[], State], port: VaultPort) -> None:
        self._state = state
        self._port = port
        self._vaults: dict[str, _Vault] = {}

    def report(self, job: str, node: str, copies: Iterable[Copy], settled_generation: int) -> None:
        """Take the complete list of copies that a node holds of a job."""
        vault = self._vaults.setdefault(job, _Vault())
        held = tuple(copies)
        vault.catalogue.replace(node, held, settled_generation)
        (vault.holders.add if held else vault.holders.discard)(node)
        self._refresh_soon(job, vault)
        self._try_choice(job)

    def connected(self, node: str, jobs: Iterable[str]) -> None:
        """A stream opened: jobs that its agent does not know have no copies there."""
        known = set(jobs)
        for job, vault in self._vaults.items():
            vault.sent.pop(node, None)
            if job not in known:
                record = self._state().jobs.get(job)
                vault.catalogue.replace(node, (), record.generation if record else 0)
                vault.holders.discard(node)
            self._refresh_soon(job, vault)
            self._try_choice(job)

    def forget_node(self, node: str) -> None:
        """A node is lost: nothing that it holds can be reached."""
        for job, vault in self._vaults.items():
            vault.catalogue.forget(node)
            vault.holders.discard(node)
            self._refresh_soon(job, vault)
            self._try_choice(job)

    def choose(self, action: ChooseRecoveryStep) -> None:
        """Answer with RecoveryStepChosen as soon as all holders have settled or are lost."""
        self._vaults.setdefault(action.job, _Vault()).choice = action
        self._try_choice(action.job)

    def job_changed(self, job: str) -> None:
        """Something happened to a job: its ring or its end may follow."""
        record = self._state().jobs.get(job)
        if record is None or record.state is JobState.ENDED:
            self._vaults.pop(job, None)
            return
        vault = self._vaults.setdefault(job, _Vault())
        if self._adopt_plan(record, vault):
            self._refresh_soon(job, vault)

    def recoverable_step(self, job: str) -> int | None:
        """Return the newest step that is recoverable without any one node."""
        vault = self._vaults.get(job)
        return vault.recoverable.step if vault else None

    # --- directives ------------------------------------------------------------------------------

    def _adopt_plan(self, record: JobRecord, vault: _Vault) -> bool:
        runs = record.state in ACTIVE or record.state is JobState.STOPPING
        if not runs or record.generation == vault.generation:
            return False
        vault.generation, vault.members = record.generation, tuple(record.members)
        vault.world_size = record.world_size
        domains = {name: node.domain for name, node in self._state().nodes.items()}
        vault.targets = replica_targets(vault.members, domains)
        return True

    def _refresh_soon(self, job: str, vault: _Vault) -> None:
        if not vault.refresh_waits:
            vault.refresh_waits = True
            delay_s = min(_REFRESH_S_MAX, (len(vault.members) - 16) * _REFRESH_S_PER_MEMBER)
            self._port.later(max(0.0, delay_s), lambda: self._refresh(job))

    def _refresh(self, job: str) -> None:
        vault = self._vaults.get(job)
        if vault is None:
            return
        vault.refresh_waits = False
        record = self._state().jobs.get(job)
        if record is not None:
            # After a restart nothing else may ever tell of a generation that just runs on.
            self._adopt_plan(record, vault)
        if not vault.members:
            return
        vault.recoverable = vault.catalogue.recoverable(
            vault.generation, vault.members, vault.world_size
        )
        for node in sorted(vault.holders.union(vault.members)):
            self._direct(job, vault, node)
        self._tell_layout(job, vault)

    def _direct(self, job: str, vault: _Vault, node: str) -> None:
        directive = Directive(
            job,
            vault.generation,
            vault.recoverable.step,
            vault.recoverable.dead_steps,
            vault.targets.get(node, ""),
        )
        if vault.sent.get(node) != directive and self._port.direct(node, directive):
            vault.sent[node] = directive

    def _tell_layout(self, job: str, vault: _Vault) -> None:
        if vault.layout_told == vault.generation:
            return
        record = self._state().jobs.get(job)
        points = record.branch if record else ()
        if any(p.generation == vault.generation and not p.shards for p in points):
            shards = vault.catalogue.layout(vault.generation, vault.world_size)
            if shards:
                vault.layout_told = vault.generation
                self._port.post(LayoutLearned(job, vault.generation, shards))

    # --- choices ---------------------------------------------------------------------------------

    def _try_choice(self, job: str) -> None:
        vault = self._vaults[job]
        action = vault.choice
        if action is None or not self._all_have_spoken(action, vault.catalogue):
            return
        vault.choice = None
        nodes = self._state().nodes
        reachable = {
            name: node.bulk_address
            for name, node in nodes.items()
            if node.connected and node.bulk_address and not node.gone
        }
        choice = vault.catalogue.choose(action.branch, reachable, expected=action.expected)
        self._port.post(
            RecoveryStepChosen(
                job=job,
                generation=action.generation,
                step=choice.step,
                sources=choice.sources,
                lost=choice.lost,
                reason=choice.reason,
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
