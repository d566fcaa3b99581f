"""The numbers of a job's snapshots, from counters alone: what they cost follows the steps held."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from everstep_controller.core.jobs import restore_point
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.lineage import BranchPoint, StepKey, StoredStep
from everstep_controller.core.model.snapshot_costs import Cadence
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.choosing import Question, best, readable, whole
from everstep_controller.core.vault.persisting import Persisting
from everstep_controller.core.vault.snapshot_table import SnapshotNumbers, StepState, StorageTable


@dataclass(frozen=True, slots=True)
class View:
    """What is known of one job's snapshots at one time."""

    job: JobRecord
    catalogue: Catalogue
    reachable: Mapping[str, str]
    recoverable_step: int | None
    persisting: Persisting
    cadence: Cadence
    bad_copies: int
    probation_steps: int
    now_ns: int

    @property
    def question(self) -> Question:
        """Return the question that would be asked if the job stopped now."""
        latest = () if self.job.lineage.latest is None else (self.job.lineage.latest,)
        avoided = restore_point.avoided(self.job)
        foreign = self.job.lineage.foreign_generation
        return Question(self.job.lineage.branch, self.reachable, True, avoided, latest, foreign)

    def point(self, key: StepKey) -> BranchPoint | None:
        """Return where on the job's branch a step is; None when it is not."""
        return next((point for point in self.job.lineage.branch if point.has(*key)), None)

    def steps(self) -> list[StepKey]:
        """Return the steps that there is anything of, newest first."""
        stored = readable(self.catalogue, self.question)
        held = {(g, s) for g in self.catalogue.generations() for s in self.catalogue.steps(g)}
        return sorted(held | stored.keys(), key=lambda key: (key[1], key[0]), reverse=True)


def snapshot_numbers(view: View) -> SnapshotNumbers:
    """Return what can be said without a look at any single copy."""
    job, step = view.job, view.recoverable_step
    found, _ = best(view.catalogue, view.question)
    stored = readable(view.catalogue, view.question)
    away = view.catalogue.away(view.reachable)

    def state(key: StepKey) -> StepState:
        point = view.point(key)
        if point is None or key in stored:
            return judged(view, key, whole=True)
        return judged(view, key, whole=whole(point, view.catalogue.parts(key, away, files=True)))

    return SnapshotNumbers(
        job=job.name,
        restore_step=None if found is None else found.step,
        recoverable_step=step,
        recoverable_age_ns=0 if step is None else age_ns(job, step, view.now_ns) or 0,
        steps_behind=0
        if step is None or job.lineage.last_step is None
        else max(0, job.lineage.last_step - step),
        states=Counter(map(state, view.steps())),
        snapshot_every=view.cadence.every,
        storage=_storage(view),
        bad_copies=view.bad_copies,
    )


def judged(view: View, key: StepKey, *, whole: bool) -> StepState:
    """Return what may become of a step."""
    if view.point(key) is None:
        return StepState.ABANDONED
    if key in view.question.avoided:
        return StepState.BLACKLISTED
    if not whole:
        return StepState.PARTIAL
    if key == view.job.lineage.restored and restore_point.on_probation(
        view.job, view.probation_steps
    ):
        return StepState.PROBATION
    return StepState.WHOLE


def ended_ns(job: JobRecord, step: int) -> int:
    """Return when all ranks had completed a step; 0 when the ledger does not go back that far."""
    for committed in reversed(job.ledger.steps):
        if committed.step <= step:
            return committed.end_ns if committed.step == step else 0
    return 0


def age_ns(job: JobRecord, step: int, now_ns: int) -> int | None:
    """Return how long ago a step was made; None when nobody knows.

    A step that the ledger has not taken yet was made just now.
    """
    if job.lineage.last_step is None or step > job.lineage.last_step:
        return 0
    at_ns = ended_ns(job, step)
    return max(0, now_ns - at_ns) if at_ns else None


def _storage(view: View) -> StorageTable | None:
    wish, state = view.job.spec.storage, view.persisting
    if wish is None:
        return None
    newest = _newest_stored(view)
    failed = max(state.failures, default=None)
    stale = failed is None or (newest is not None and newest.key > failed)
    return StorageTable(
        path=wish.path,
        every_steps=wish.every_steps,
        every_ns=wish.every_ns,
        keep=wish.keep,
        step=None if newest is None else newest.step,
        generation=0 if newest is None else newest.generation,
        size_bytes=0 if newest is None else newest.size_bytes,
        stored_ns=state.newest_ns,
        pending=tuple(sorted(state.named)),
        failure="" if stale or failed is None else state.failures[failed],
        failed_step=0 if stale or failed is None else failed[1],
    )


def _newest_stored(view: View) -> StoredStep | None:
    """Return the newest whole step in storage; nobody counts them for a job that has ended."""
    if view.job.state is not JobState.ENDED:
        return view.persisting.newest or view.job.lineage.latest
    found = readable(view.catalogue, view.question)
    return max(found.values(), key=lambda step: (step.step, step.generation), default=None)
