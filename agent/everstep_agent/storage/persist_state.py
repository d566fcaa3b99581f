"""Persist state: the steps that the controller wants stored, and the outcome of each. Pure."""

from dataclasses import dataclass, field, replace

from everstep_agent.storage.formats.records import StepKey
from everstep_agent.vault.snapshots.copies import CopyKey, CopyManifest, Recoverable
from everstep_common.reports import StoredStep

# A step that could not be stored so often is given up and its memory freed: the next step follows.
ATTEMPTS_MAX = 3
# How many of the newest steps a node reports as stored: older ones may have been removed.
_STEPS_TOLD_MAX = 4


@dataclass(slots=True)
class PersistState:
    """The newest word of the controller, and what this node did about it."""

    steps: tuple[StepKey, ...] = ()
    # Ranks whose replicas go to storage too.
    replicas: frozenset[int] = frozenset()
    on_disk: dict[CopyKey, CopyManifest] = field(default_factory=dict)
    failures: dict[StepKey, str] = field(default_factory=dict)
    stored: tuple[StoredStep, ...] = ()
    # Id of the folder to which this node has written; "" before.
    storage_id: str = ""
    _attempts: dict[CopyKey, int] = field(default_factory=dict)

    def change_location(self) -> None:
        """The job names another place: nothing is there yet, as far as is known."""
        self.stored, self.on_disk, self.failures, self._attempts = (), {}, {}, {}
        self.storage_id = ""

    def apply_directive(self, steps: tuple[StepKey, ...], replicas: frozenset[int]) -> None:
        """Take the controller's word; what it does not name any more is no failure any more."""
        self.steps, self.replicas = steps, replicas
        self.failures = {key: why for key, why in self.failures.items() if key in steps}

    def retaining(self, recoverable: Recoverable) -> Recoverable:
        """Return what may be freed, without what is on its way to storage."""
        steps = [key for key in self.steps if key not in self.failures]
        storing = frozenset((key.generation, key.step) for key in steps)
        on_disk = frozenset(key for key in self.on_disk if step_of(key) in steps)
        return replace(recoverable, storing=storing, on_disk=on_disk)

    def should_persist(self, key: CopyKey, *, replica: bool) -> bool:
        """Return whether a copy is to be written."""
        step = step_of(key)
        if step not in self.steps or step in self.failures or key in self.on_disk:
            return False
        return not replica or key.rank in self.replicas

    def mark_persisted(self, manifest: CopyManifest) -> None:
        """A copy is a file now."""
        self._attempts.pop(manifest.key, None)
        self.on_disk[manifest.key] = manifest
        told = sorted({step_of(key) for key in self.on_disk})[-_STEPS_TOLD_MAX:]
        self.on_disk = {key: one for key, one in self.on_disk.items() if step_of(key) in told}

    def mark_failed(self, key: CopyKey, reason: str) -> bool:
        """An attempt failed; return whether the step was given up."""
        attempts = self._attempts[key] = self._attempts.get(key, 0) + 1
        if attempts < ATTEMPTS_MAX:
            return False
        del self._attempts[key]
        self.failures[step_of(key)] = reason
        return True


def step_of(key: CopyKey) -> StepKey:
    """Return the step that a copy is part of."""
    return StepKey(key.generation, key.step)
