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
    """Progress of one rank."""

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
    # Its compute time, as `compute_time` packs it; 0: it tells nothing of that.
    own: int = 0
    # Which part of the model it computes, as its script told.
    role: str = ""
    # The newest step that it printed itself, and since when; None: it printed none.
    printed: int | None = None
    printed_ms: int = 0


def pack_ranks(job: str, generation: int, rows: Sequence[RankRow]) -> RankColumns:
    """Return them as columns; the ranks follow one another."""
    phases, rank_phases = _numbered([row.phase for row in rows])
    roles, rank_roles = _numbered([row.role for row in rows])
    own = [row.own for row in rows]
    printed = [0 if row.printed is None else row.printed + 1 for row in rows]
    return RankColumns(
        job=job,
        generation=generation,
        first_rank=rows[0].rank,
        steps=_little("q", [-1 if row.step is None else row.step for row in rows]),
        median_ms=_little("I", [min(row.median_ms, _MS_MAX) for row in rows]),
        p99_ms=_little("I", [min(row.p99_ms, _MS_MAX) for row in rows]),
        since_ms=_little("I", [min(row.since_ms, _MS_MAX) for row in rows]),
        phases=phases,
        rank_phases=rank_phases,
        own=_little("q", own) if any(own) else b"",
        roles=roles if any(roles) else (),
        rank_roles=rank_roles if any(roles) else b"",
        printed=_little("q", printed) if any(printed) else b"",
        printed_ms=_little("I", [min(row.printed_ms, _MS_MAX) for row in rows])
        if any(printed)
        else b"",
    )


def _numbered(names: Sequence[str]) -> tuple[tuple[str, ...], bytes]:
    """Return the different names, and for each one its place among them."""
    different = tuple(sorted(set(names)))[:_PHASES_MAX]
    numbers = {name: number for number, name in enumerate(different)}
    return different, bytes(numbers.get(name, 0) for name in names)


def unpack_ranks(columns: RankColumns) -> Iterator[RankRow]:
    """Yield them one by one; columns of different lengths are read to the shortest."""
    steps, own = _values("q", columns.steps), _values("q", columns.own)
    printed, printed_ms = _values("q", columns.printed), _values("I", columns.printed_ms)
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
            own=max(own[place], 0) if place < len(own) else 0,
            role=_role(columns, place),
            printed=printed[place] - 1 if place < len(printed) and printed[place] > 0 else None,
            printed_ms=printed_ms[place] if place < len(printed_ms) else 0,
        )


def _role(columns: RankColumns, place: int) -> str:
    number = columns.rank_roles[place] if place < len(columns.rank_roles) else _PHASES_MAX
    return columns.roles[number] if number < len(columns.roles) else ""


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
