"""Snapshots of a job for people: counts, ages, and the table of `everstep snapshots JOB`.

Counts and ages are found without a look at any single copy. In the table, tiers are named as users
read them, in the order in which a restore takes them: own memory, peer memory, local disk, shared
storage. A large job has a hundred thousand copies: the table is made step by step, so that whoever
asks can let others have their turn in between.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter

from everstep_common.reports import StoredStep, Turnover
from everstep_controller.core.jobs import restore_point
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.snapshots import BranchPoint, Cadence, StepKey
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.copies import Copy, StepCopies, Tier
from everstep_controller.core.vault.persistence import Persistence
from everstep_controller.core.vault.recovery_step import (
    PickedStep,
    Question,
    find_newest,
    is_whole,
    missing_parts,
    pick_step,
    readable_steps,
)


class StepState(Enum):
    """State of a snapshotted step: what may become of it."""

    COMPLETE = "complete"
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
    # newest complete step there; None when there is none.
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
    # How long slots are taken where they are longest; None: not known.
    turnover: Turnover | None = None


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """View of one job's snapshots at one time, from which numbers and tables are made."""

    job: JobRecord
    catalogue: Catalogue
    reachable: Mapping[str, str]
    recoverable_step: int | None
    persisting: Persistence
    cadence: Cadence
    turnover: Turnover | None
    bad_copies: int
    probation_steps: int
    now_ns: int

    @property
    def question(self) -> Question:
        """Return the question that would be asked if the job stopped now."""
        latest = () if self.job.lineage.latest is None else (self.job.lineage.latest,)
        avoided = restore_point.avoided(self.job)
        return Question(self.job.lineage.branch, self.reachable, True, avoided, latest)

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
        turnover=view.turnover,
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
    return StepState.COMPLETE


def age_ns(job: JobRecord, step: int, now_ns: int) -> int | None:
    """Return how long ago a step was made; None when nobody knows.

    A step that the ledger has not taken yet was made just now.
    """
    if job.lineage.last_step is None or step > job.lineage.last_step:
        return 0
    # 0 where the ledger does not go back that far.
    at_ns = job.ledger.steps.ended_ns(step)
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
    """Return the newest complete step in storage; nobody counts them for a job that has ended."""
    if view.job.state is not JobState.ENDED:
        return view.persisting.newest or view.job.lineage.latest
    found = readable_steps(view.catalogue, view.question)
    return max(found.values(), key=lambda step: (step.step, step.generation), default=None)


# Of a copy: a step has thirty thousand, and these read them without a turn of Python each.
_NODE, _SIZE, _PART = attrgetter("node"), attrgetter("size_bytes"), attrgetter("part")

_TIERS = ("own memory", "peer memory", "local disk")


@dataclass(frozen=True, slots=True)
class TierCopies:
    """The copies of one step in one tier."""

    tier: str
    copies: int
    # Parts of the state that they cover.
    parts: int
    nodes: tuple[str, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotStep:
    """One step; counts are of copies that can be reached now."""

    generation: int
    step: int
    # When all ranks had completed it, on the controller's timeline; 0 when unknown.
    ended_ns: int
    state: StepState
    # One sentence for a step that is not simply complete.
    reason: str
    parts: int
    parts_held: int
    size_bytes: int
    tiers: tuple[TierCopies, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTable:
    """The snapshots of one job; steps newest first."""

    numbers: SnapshotNumbers
    # Why the step that would be restored, and which generation made it; or why there is none.
    restore_generation: int
    restore_reason: str
    # Why no newer one; empty when there is none.
    not_newer: str
    steps: tuple[SnapshotStep, ...]
    # Why snapshots are taken as often as they are.
    cadence_reason: str


def tier_of(copy: Copy) -> str:
    """Return the tier of a copy, as users read it."""
    return _TIERS[2 if copy.tier is Tier.DISK else copy.replica]


def snapshot_table(view: SnapshotView, steps: Sequence[SnapshotStep]) -> SnapshotTable:
    """Return the table of these lines, and what would be restored if the job stopped now."""
    picked = pick_step(view.catalogue, view.question)
    found = picked.candidate
    if found is not None:
        steps = _as_of_now(view, steps, (found.step, found.generation))
    return SnapshotTable(
        numbers=count_snapshots(view),
        restore_generation=0 if found is None else found.generation,
        restore_reason=picked.lost or picked.reason,
        not_newer=_not_newer(steps, picked),
        steps=tuple(steps),
        cadence_reason=view.cadence.reason,
    )


def snapshot_steps(view: SnapshotView) -> Iterator[SnapshotStep]:
    """Yield every step with its copies, newest first; one that goes meanwhile is left out."""
    return _lines(view, view.steps())


def _as_of_now(
    view: SnapshotView, steps: Sequence[SnapshotStep], chosen: tuple[int, int]
) -> list[SnapshotStep]:
    """Return the lines, those made anew that copies may have changed which came meanwhile."""
    settled = {
        (line.generation, line.step): line
        for line in steps
        if line.state is not StepState.PARTIAL and (line.step, line.generation) < chosen
    }
    keys = view.steps()
    anew = _lines(view, [key for key in keys if key not in settled])
    known = settled | {(line.generation, line.step): line for line in anew}
    return [known[key] for key in keys if key in known]


def _lines(view: SnapshotView, keys: Sequence[StepKey]) -> Iterator[SnapshotStep]:
    stored = readable_steps(view.catalogue, view.question)
    for key in keys:
        copies = view.catalogue.steps(key[0]).get(key[1])
        if copies is not None or key in stored:
            yield _step(view, key, copies or StepCopies(), stored.get(key))


def _step(
    view: SnapshotView, key: StepKey, held: StepCopies, stored: StoredStep | None
) -> SnapshotStep:
    away = view.catalogue.away(view.reachable)
    copies = [copy for copy in held if copy.node not in away] if away else list(held)
    point = view.point(key)
    covered = view.catalogue.parts(key, away, files=True)
    lacking = missing_parts(point, covered) if point is not None and stored is None else []
    state = judge_step(view, key, whole=not lacking)
    parts = len(covered.layouts)
    wanted = parts + len(lacking)
    if stored is not None:
        wanted = max(parts, len(point.layouts) if point else 0, 0 if copies else stored.world_size)
        parts = wanted
    sizes = dict(zip(map(_PART, copies), map(_SIZE, copies), strict=True))
    return SnapshotStep(
        generation=key[0],
        step=key[1],
        ended_ns=view.job.ledger.steps.ended_ns(key[1]) if point is not None else 0,
        state=state,
        reason=_reason(view, state, lacking),
        parts=wanted,
        parts_held=parts,
        size_bytes=sum(sizes.values()) if copies or stored is None else stored.size_bytes,
        tiers=tuple(_tiers(copies, stored, wanted)),
    )


def _reason(view: SnapshotView, state: StepState, lacking: Sequence[str]) -> str:
    """Return why a step is not simply complete."""
    if state is StepState.ABANDONED:
        return "of a branch that a recovery has left behind: never restored"
    if state is StepState.BLACKLISTED:
        return "the job called it bad or crashed twice soon after it was restored"
    if state is StepState.PARTIAL:
        shown = ", ".join(lacking[:3]) + (" …" if len(lacking) > 3 else "")
        return f"no reachable copy of {shown}"
    if state is StepState.PROBATION:
        return f"restored, and not yet {view.probation_steps} steps further"
    return ""


def _tiers(copies: Sequence[Copy], stored: StoredStep | None, parts: int) -> Iterator[TierCopies]:
    disk = Tier.DISK
    own = [copy for copy in copies if not copy.replica and copy.tier is not disk]
    peers = [copy for copy in copies if copy.replica and copy.tier is not disk]
    files = [copy for copy in copies if copy.tier is disk]
    for tier, some in zip(_TIERS, (own, peers, files), strict=True):
        if some:
            held, nodes = len(set(map(_PART, some))), sorted(set(map(_NODE, some)))
            yield TierCopies(tier, len(some), held, tuple(nodes), sum(map(_SIZE, some)))
    if stored is not None:
        yield TierCopies("shared storage", 1, parts, (), stored.size_bytes)


def _not_newer(steps: Sequence[SnapshotStep], picked: PickedStep) -> str:
    """Return why the newest step that is newer than the chosen one is not taken."""
    found = picked.candidate
    newer = [step for step in steps if found is None or step.step > found.step]
    on_branch = [step for step in newer if step.state is not StepState.ABANDONED] or newer
    return f"step {on_branch[0].step}: {on_branch[0].reason}" if on_branch else ""
