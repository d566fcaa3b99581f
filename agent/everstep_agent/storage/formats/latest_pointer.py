"""Pointer ``latest``: who may move it, where to, and what may then be removed. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from everstep_agent.storage.formats.records import (
    LatestPointer,
    RecordError,
    StepKey,
    decode_record,
    is_sane,
    key_of,
    step_folder,
)
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
    restored: StepKey | None,
) -> list[StepKey]:
    """Return which of the steps that were found may go, oldest first; ``whole`` are of ``keep``.

    Of older generations these are the steps up to the one that this generation has ``restored``:
    a newer one may be the last good one of another branch. What this generation wrote after its
    newest whole step may be being written.
    """
    if latest.target is None or len({*whole, latest.target}) < KEPT_MIN:
        return []

    def may_go(key: StepKey) -> bool:
        if key.generation == latest.generation:
            return latest.target is not None and key < latest.target
        older = key.generation < latest.generation
        return older and restored is not None and key.step <= restored.step and key <= restored

    return sorted(key for key in found if may_go(key) and key not in {*keep, latest.target})


@dataclass(frozen=True, slots=True)
class ReadPointer:
    """Content of ``latest``; None where it says nothing, and why it does not."""

    latest: LatestPointer | None = None
    problem: str = ""


def read_pointer(content: bytes | None) -> ReadPointer:
    """Return what the content of ``latest`` says."""
    if content is None:
        return ReadPointer(problem="is missing")
    try:
        latest = decode_record(LatestPointer, content)
    except RecordError as error:  # not ours, or cut short by something else
        return ReadPointer(problem=f"cannot be used: {error}")
    if not is_sane(latest):
        return ReadPointer(problem="cannot be used: its numbers are none")
    return ReadPointer(latest)
