"""Rank columns: how far the ranks of one job on a node are, packed for samples. Pure."""

import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from everstep_common.reports.nodes import RankColumns

# Columns of 32 bits hold milliseconds: 49 days.
_MS_MAX = 2**32 - 1
_PHASES_MAX = 64


@dataclass(frozen=True, slots=True)
class RankRow:
    """How far one rank is."""

    rank: int
    # The newest step that it completed; None: it told of none.
    step: int | None
    # Half of its newest gaps between steps are no longer, and 99 of 100.
    median_ms: int
    p99_ms: int
    # Since its newest step.
    since_ms: int
    # Its phase or pause, as its script told.
    phase: str


def pack_ranks(job: str, generation: int, rows: Sequence[RankRow]) -> RankColumns:
    """Return them as columns; the ranks follow one another."""
    phases = tuple(sorted({row.phase for row in rows}))[:_PHASES_MAX]
    numbers = {phase: number for number, phase in enumerate(phases)}
    return RankColumns(
        job=job,
        generation=generation,
        first_rank=rows[0].rank,
        steps=_little("q", [-1 if row.step is None else row.step for row in rows]),
        median_ms=_little("I", [min(row.median_ms, _MS_MAX) for row in rows]),
        p99_ms=_little("I", [min(row.p99_ms, _MS_MAX) for row in rows]),
        since_ms=_little("I", [min(row.since_ms, _MS_MAX) for row in rows]),
        phases=phases,
        rank_phases=bytes(numbers.get(row.phase, 0) for row in rows),
    )


def unpack_ranks(columns: RankColumns) -> Iterator[RankRow]:
    """Yield them one by one; columns of different lengths are read to the shortest."""
    steps = _values("q", columns.steps)
    times = (_values("I", one) for one in (columns.median_ms, columns.p99_ms, columns.since_ms))
    rows = zip(steps, *times, columns.rank_phases, strict=False)
    for place, (step, median_ms, p99_ms, since_ms, phase) in enumerate(rows):
        yield RankRow(
            rank=columns.first_rank + place,
            step=None if step < 0 else step,
            median_ms=median_ms,
            p99_ms=p99_ms,
            since_ms=since_ms,
            phase=columns.phases[phase] if phase < len(columns.phases) else "",
        )


def _little(kind: str, values: Sequence[int]) -> bytes:
    packed = array(kind, values)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _values(kind: str, content: bytes) -> "array[int]":
    found = array(kind)
    found.frombytes(content[: len(content) - len(content) % found.itemsize])
    if sys.byteorder == "big":
        found.byteswap()
    return found
