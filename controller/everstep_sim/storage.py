"""Simulated shared folder: files, manifests, and a `latest` pointer that moves only forward."""

from dataclasses import dataclass, field

from everstep_common.reports import StoredStep
from everstep_controller.core.model.snapshots import StepKey
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.persistence import Publish


@dataclass(slots=True)
class SharedFolder:
    """Shared storage that all nodes see, also those that the controller cannot hear any more."""

    files: dict[StepKey, dict[int, Copy]] = field(default_factory=dict)
    manifests: dict[StepKey, StoredStep] = field(default_factory=dict)
    latest: StoredStep | None = None
    # The newest generation that has moved `latest`, or fenced older ones off.
    fence: int = 0
    # Whole steps that were removed.
    removed: list[StepKey] = field(default_factory=list)

    def write(self, copy: Copy) -> None:
        """Put a rank's file into its step."""
        self.files.setdefault((copy.generation, copy.step), {})[copy.rank] = copy

    def publish(self, publish: Publish) -> bool:
        """Do what the controller wants, unless a newer generation was here; tell whether."""
        if publish.generation < self.fence:
            return False
        overtakes = publish.generation > self.fence
        self.fence, target = publish.generation, publish.target
        if target is None:
            return True
        if publish.files and target.key not in self.manifests:
            written = self.files.get(target.key, {})
            if any(file.rank not in written for file in publish.files):
                return False
            name = f"{target.generation:04}{target.step:06}"
            size = sum(file.size_bytes for file in publish.files)
            self.manifests[target.key] = StoredStep(*target.key, target.world_size, name, size)
        forward = overtakes or self.latest is None or target.key >= self.latest.key
        if forward and target.key in self.manifests:
            self.latest = self.manifests[target.key]
            self._remove(publish, self.latest)
        return True

    def _remove(self, publish: Publish, latest: StoredStep) -> None:
        """Remove what is not kept, but nothing that may still be being written."""
        end = max((publish.generation, 0), latest.key)
        kept = {latest.key, *(step.key for step in publish.keep)}
        for key in [key for key in self.files if key < end and key not in kept]:
            del self.files[key]
            if self.manifests.pop(key, None) is not None:
                self.removed.append(key)

    def whole(self) -> tuple[StoredStep, ...]:
        """Return the steps that have a manifest."""
        return tuple(self.manifests[key] for key in sorted(self.manifests))
