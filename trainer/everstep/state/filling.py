"""Filling: copies shards from the vault into the parts of the state that this process has."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from everstep.copy_engine.memory import Copy
from everstep.copy_engine.views import Copies, Found, RestoreError
from everstep.state.shards.holdings import Piece
from everstep.state.shards.regions import span
from everstep.state.targets import Target


@dataclass(frozen=True, slots=True)
class Filling:
    """Restore target with the shards that hold it."""

    target: Target
    pieces: tuple[Piece, ...]


def fill(fillings: Sequence[Filling], found: Found, copier: Copies) -> None:
    """Copy everything. Raises RestoreError before the first byte when a shard is not as told."""
    moves = [
        (filling.target, piece, _address(piece, found))
        for filling in fillings
        for piece in filling.pieces
    ]
    copies = []
    for target, piece, address in moves:
        copy = None if target.memory.cuda is not None else _in_one_piece(target, piece, address)
        if copy is None:
            from everstep.state.memory.restored_tensors import (
                copy_box,  # strides and devices are torch's
            )

            copy_box(target.part, target.memory, piece, address)
        else:
            copies.append(copy)
    copier.copy(copies)
    for filling in fillings:
        filling.target.after()


def _address(piece: Piece, found: Found) -> int:
    name = piece.entry.name
    if name not in found:
        raise RestoreError(f"no copy holds shard {name!r}")
    entry, address = found[name]
    told = (piece.entry.size_bytes, piece.entry.format, piece.entry.shape, piece.entry.begins)
    if (entry.size_bytes, entry.format, entry.shape, entry.begins) != told:
        raise RestoreError(f"shard {name!r} is not what was described")
    return address


def _in_one_piece(target: Target, piece: Piece, address: int) -> Copy | None:
    part, overlap = target.part, piece.overlap
    here = span(part.region.shape, overlap.here, overlap.shape)
    there = span(piece.region.shape, overlap.there, overlap.shape)
    if here is None or there is None:
        return None
    return Copy(
        target.memory.address + here * part.item_bytes,
        address + there * part.item_bytes,
        math.prod(overlap.shape) * part.item_bytes,
    )
