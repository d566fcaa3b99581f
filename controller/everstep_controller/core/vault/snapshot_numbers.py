"""Snapshot numbers of a job: counts and ages, found without a look at any single copy."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from everstep_common.reports import StoredStep
from everstep_controller.core.jobs import restore_point
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.snapshots import BranchPoint, Cadence, StepKey
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.persistence import Persistence
from everstep_controller.core.vault.recovery_step import (
    Question,
    find_newest,
    is_whole,
    readable_steps,
)


class StepState(Enum):
    """State of a snapshotted step: what may become of it."""

    WHOLE = "whole"
    PARTIAL = "partial"
    # The job was restored from it and has not made enough new steps since.
    PROBATION = "probation"
    # The job crashed twice soon after it was restored from it.
    BLACKLISTED = "blacklisted"
    # Of a branch that a recovery has left behind.
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageTable:
    """Progress of bringing a job's state to storage, as shown to people."""

    path: str
    every_steps: int
    every_ns: int
    keep: int
    # Newest whole step there; None when there is none.
    step: int | None
    generation: int
    size_bytes: int
    stored_ns: int
    # Steps that are on their way, oldest first.
    pending: tuple[int, ...]
    # Why a step could not be brought there last, unless a newer one was.
    failure: str
    failed_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotNumbers:
    """Numbers of a job's snapshots: counts, ages and the step that a restart would restore."""

    job: str
    # The step that would be restored if the job stopped now; None without one.
    restore_step: int | None
    # Newest step that survives the loss of any one node, and how old it is.
    recoverable_step: int | None
    recoverable_age_ns: int
    # How many completed steps the job would lose with it.
    steps_behind: int
    # How many steps there are of each kind.
    states: Mapping[StepState, int]
    # Snapshots are taken at every so many steps, 0 while that is not decided.
    snapshot_every: int
    storage: StorageTable | None
    bad_copies: int


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """View of one job's snapshots at one time, from which numbers and tables are made."""

    job: JobRecord
    catalogue: Catalogue
    reachable: Mapping[str, str]
    recoverable_step: int | None
    persisting: Persistence
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
        stored = readable_steps(self.catalogue, self.question)
        held = {(g, s) for g in self.catalogue.generations() for s in self.catalogue.steps(g)}
        return sorted(held | stored.keys(), key=lambda key: (key[1], key[0]), reverse=True)


def count_snapshots(view: SnapshotView) -> SnapshotNumbers:
    """Return what can be said without a look at any single copy."""
    job, step = view.job, view.recoverable_step
    found, _ = find_newest(view.catalogue, view.question)
    stored = readable_steps(view.catalogue, view.question)
    away = view.catalogue.away(view.reachable)

    def state(key: StepKey) -> StepState:
        point = view.point(key)
        if point is None or key in stored:
            return judge_step(view, key, whole=True)
        return judge_step(
            view, key, whole=is_whole(point, view.catalogue.parts(key, away, files=True))
        )

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


def judge_step(view: SnapshotView, key: StepKey, *, whole: bool) -> StepState:
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


def _storage(view: SnapshotView) -> StorageTable | None:
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


def _newest_stored(view: SnapshotView) -> StoredStep | None:
    """Return the newest whole step in storage; nobody counts them for a job that has ended."""
    if view.job.state is not JobState.ENDED:
        return view.persisting.newest or view.job.lineage.latest
    found = readable_steps(view.catalogue, view.question)
    return max(found.values(), key=lambda step: (step.step, step.generation), default=None)
