"""Holdings: the shards that a step has, and which of them hold what a process wants; no I/O."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from everstep.copy_engine.views import OTHER_MODEL, MissingError, RestoreError
from everstep.state.shards.parts import Part, Place
from everstep.state.shards.regions import Overlap, Region, missing_count, overlap, whole
from everstep_common.rank_messages import Entry
from everstep_common.shard_names import owner, private_name


@dataclass(frozen=True, slots=True)
class Piece:
    """Piece of a wanted part that one shard gives."""

    entry: Entry
    region: Region
    overlap: Overlap


class Holdings:
    """Every shard that is described, by the array that it is a part of."""

    def __init__(self, described: tuple[Entry, ...], place: Place) -> None:
        self._place = place
        self._by_tensor: dict[str, list[Entry]] = {}
        self._marked: dict[str, list[str]] = {}
        ranks: set[int] = set()
        for entry in described:
            tensor = entry.tensor or entry.name
            if tensor not in self._by_tensor:
                path, mark, _ = tensor.partition("@")
                if mark:
                    self._marked.setdefault(path, []).append(tensor)
            self._by_tensor.setdefault(tensor, []).append(entry)
            rank, _ = owner(tensor)
            if rank is not None:
                ranks.add(rank)
        # Every rank saves something private, so who is alone there is described alone, and no other
        # rank's things may stand in: they are only not known.
        self._others_known = ranks != {place.rank}
        self._ranks = sorted(ranks)
        self._world_size = max(ranks, default=-1) + 1

    def source_rank(self, path: str, *, own_only: bool = False) -> int | None:
        """Return whose private ``path`` to take; None: leave what ``own_only`` means as it is.

        A rank that the step's world had not takes what the rank has that stood in its place,
        counted round; of what is replaceable, any rank's will do. Raises MissingError when no rank
        has it.
        """
        own = self._place.rank
        if self.private(own, path):
            return own
        if self._others_known and self._world_size:
            if own_only:
                return None
            others: Sequence[int] = self._ranks if self._place.replaces(path) else ()
            for other in (own % self._world_size, *others):
                if self.private(other, path):
                    return other
        raise MissingError(
            f"no copy holds {path!r} of rank {own}, nor of another in its place{OTHER_MODEL}"
        )

    def private(self, rank: int, path: str) -> str:
        """Return as what a rank's private ``path`` was saved; "": it was not."""
        names = (private_name(rank, path, replaceable=one) for one in (False, True))
        return next((name for name in names if name in self._by_tensor), "")

    def pieces(self, part: Part, source_rank: int) -> tuple[Piece, ...]:
        """Return the shards that together hold the part. Raises MissingError, RestoreError."""
        missing = part.region.count
        for tensor in self._candidates(part, source_rank):
            pieces = [
                Piece(entry, region, found)
                for entry in self._by_tensor[tensor]
                if (region := _checked_region(entry, part))
                and (found := overlap(part.region, region))
            ]
            missing = missing_count(part.region, (piece.overlap for piece in pieces))
            if missing == 0:
                return tuple(pieces)
        if missing == 0:
            return ()
        groups = len(self._marked.get(part.path, ()))
        raise MissingError(
            f"no copy holds all of tensor {part.path!r}, region [{part.region}]:"
            f" {missing} of {part.region.count} elements are missing"
            + (f"; {groups} groups of ranks hold one of that name each" if groups > 1 else "")
        )

    def _candidates(self, part: Part, source_rank: int) -> list[str]:
        own = self.private(source_rank, part.path)
        shared = [part.shared_name, part.path]
        marked = self._marked.get(part.path, [])
        if self._others_known and len(marked) == 1:
            shared += marked
        ordered = [own, *shared] if part.replicas is None else [*shared, own]
        return [name for name in dict.fromkeys(ordered) if name in self._by_tensor]


def _checked_region(entry: Entry, part: Part) -> Region:
    region = Region(entry.begins, entry.shape) if entry.tensor else whole(entry.shape)
    saved = (entry.format, entry.whole if entry.tensor else entry.shape)
    if saved != (part.format, part.whole):
        raise RestoreError(
            f"tensor {part.path!r} was saved as (format, shape) {saved},"
            f" but is {(part.format, part.whole)} here{OTHER_MODEL}"
        )
    sane = (
        len(region.begins) == len(region.shape) == len(part.whole)
        and min((*region.begins, *region.shape), default=0) >= 0
        and math.prod(region.shape) * part.item_bytes == entry.size_bytes
    )
    if not sane:
        raise RestoreError(f"shard {entry.name!r} does not describe a part of its tensor")
    return region
