"""Pointer ``latest``: who may move it, where to, and what may then be removed. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from everstep_agent.storage.formats.records import LatestPointer, StepKey, key_of, step_folder
from everstep_common.reports import StoredStep

# Fewest whole steps that are kept, as a removal cannot be undone.
KEPT_MIN = 2


@dataclass(frozen=True, slots=True)
class PointerMove:
    """New content of ``latest``; None leaves it, and the sentence says why."""

    content: LatestPointer | None
    reason: str
    # The caller is of an older generation: it must not do anything else either.
    refused: bool = False


def decide_move(
    now: LatestPointer | None,
    newest: int,
    generation: int,
    target: StoredStep | None,
    older: Iterable[StepKey] = (),
) -> PointerMove:
    """Return what becomes of ``latest`` (``now``), with ``newest`` the newest generation seen.

    Forward only in (generation that says so, step): an older generation that wakes up has lost.
    ``older`` are steps of the same branch.
    """
    newest = max(newest, now.generation if now else 0)
    if newest > generation:
        return PointerMove(
            None, f"generation {newest} has taken over from {generation}", refused=True
        )
    if target is None:
        content = (
            replace(now, generation=generation) if now else LatestPointer(generation=generation)
        )
    elif target.generation > generation:
        return PointerMove(None, f"{key_of(target)} is not older than {generation}", refused=True)
    elif now and now.generation == generation and now.target and now.target > key_of(target):
        return PointerMove(None, f"latest is at {now.target} already")
    else:
        content = replace(
            pointer_to(generation, target),
            older=tuple(sorted(key for key in older if key < key_of(target))),
        )
    if content == now:
        return PointerMove(None, f"latest is at {content.target or 'no step'} already")
    return PointerMove(content, f"latest is at {content.target or 'no step'} now")


def best_available(
    latest: LatestPointer | None, whole: Mapping[StepKey, StoredStep]
) -> LatestPointer | None:
    """Return where a job can go on from: what ``latest`` points to, or the step before it."""
    if latest is None or latest.target is None:
        return None
    found = whole.get(latest.target)
    if found is not None and found.manifest_hash == latest.manifest_hash:
        return latest
    left = [whole[key] for key in sorted(latest.older) if key in whole]
    return pointer_to(latest.generation, left[-1]) if left else None


def pointer_to(generation: int, target: StoredStep) -> LatestPointer:
    """Return what ``latest`` says to point to a step."""
    return LatestPointer(
        generation=generation,
        target=key_of(target),
        folder=step_folder(key_of(target)),
        manifest_hash=target.manifest_hash,
        world_size=target.world_size,
        size_bytes=target.size_bytes,
        skipped=target.skipped,
    )


def removable_steps(
    found: Iterable[StepKey],
    keep: Collection[StepKey],
    whole: Collection[StepKey],
    latest: LatestPointer,
) -> list[StepKey]:
    """Return which of the steps that were found may go, oldest first; ``whole`` are of ``keep``.

    What this generation wrote after its newest whole step may be being written.
    """
    if latest.target is None or len({*whole, latest.target}) < KEPT_MIN:
        return []
    end = max(StepKey(latest.generation, 0), latest.target)
    return sorted(key for key in found if key < end and key not in {*keep, latest.target})
