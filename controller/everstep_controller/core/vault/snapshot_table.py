"""Snapshot table of a job: its steps and their copies by tier, as `everstep snapshots JOB` prints.

Tiers are named as users read them, in the order in which a restore takes them: own memory, peer
memory, local disk, shared storage. A large job has a hundred thousand copies: the table is made
step by step, so that whoever asks can let others have their turn in between.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from everstep_common.reports import StoredStep
from everstep_controller.core.model.snapshots import StepKey
from everstep_controller.core.vault.copies import Copy, StepCopies, Tier
from everstep_controller.core.vault.recovery_step import (
    PickedStep,
    missing_parts,
    pick_step,
    readable_steps,
)
from everstep_controller.core.vault.snapshot_numbers import (
    SnapshotNumbers,
    SnapshotView,
    StepState,
    count_snapshots,
    ended_ns,
    judge_step,
)

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
    # One sentence for a step that is not simply whole.
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
        ended_ns=ended_ns(view.job, key[1]) if point is not None else 0,
        state=state,
        reason=_reason(view, state, lacking),
        parts=wanted,
        parts_held=parts,
        size_bytes=sum(sizes.values()) if copies or stored is None else stored.size_bytes,
        tiers=tuple(_tiers(copies, stored, wanted)),
    )


def _reason(view: SnapshotView, state: StepState, lacking: Sequence[str]) -> str:
    """Return why a step is not simply whole."""
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
