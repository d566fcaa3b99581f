"""Progress columns: the steps of all jobs within a second as one row of columns.

Each value is a number of eight bytes; of a column all first bytes come first, then all second ones:
most are zeros, or the same, and cost nothing once they are compressed.
"""

import zlib
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import msgspec

from everstep_controller.core.events import JobProgressed

_BYTES = 8
# The agents' clocks agree to no more than some microseconds, and so are steps measured.
_UNITS = (1000, 1)
_LEVEL = 6


class _Header(msgspec.Struct, array_like=True):
    jobs: list[str]
    # Steps of all rows together.
    steps: int
    # What the ends of all steps are counted from, and in which nanoseconds.
    base_ns: int
    unit_ns: int


def pack(rows: Sequence[JobProgressed]) -> bytes:
    """Return rows as compressed columns."""
    ends = [end_ns for row in rows for end_ns in row.end_ns]
    stalls = [stall_ns for row in rows for stall_ns in row.stall_ns]
    unit_ns = next(unit for unit in _UNITS if not any(ns % unit for ns in (*ends, *stalls)))
    base_ns = min(ends, default=0)
    header = _Header([row.job for row in rows], len(ends), base_ns, unit_ns)
    columns = (
        [row.generation for row in rows],
        [row.first_step for row in rows],
        [len(row.end_ns) for row in rows],
        [_behind(row) for row in rows],
        [row.snapshots_skipped for row in rows],
        [(end_ns - base_ns) // unit_ns for end_ns in ends],
        [stall_ns // unit_ns for stall_ns in stalls],
    )
    text = msgspec.json.encode(header)
    planes = b"".join(_planes(column) for column in columns)
    return zlib.compress(len(text).to_bytes(4, "big") + text + planes, _LEVEL)


def unpack(body: bytes) -> tuple[JobProgressed, ...]:
    """Return the rows again. Raises ValueError, zlib.error, msgspec.MsgspecError."""
    whole = zlib.decompress(body)
    begin = 4 + int.from_bytes(whole[:4], "big")
    header = msgspec.json.decode(whole[4:begin], type=_Header)
    sizes = [len(header.jobs)] * 5 + [header.steps] * 2
    columns = _columns(whole[begin:], sizes)
    generations, firsts, counts, behind, skipped, ends, stalls = columns
    if sum(counts) != header.steps or min(counts, default=0) < 0:
        raise ValueError("it has other steps than it says")
    return tuple(
        JobProgressed(
            job=job,
            generation=generations[at],
            first_step=firsts[at],
            end_ns=tuple(header.base_ns + end * header.unit_ns for end in ends[begin:end]),
            stall_ns=tuple(stall * header.unit_ns for stall in stalls[begin:end]),
            recoverable_step=None if behind[at] == _NONE else firsts[at] - behind[at],
            snapshots_skipped=skipped[at],
        )
        for at, (job, (begin, end)) in enumerate(
            zip(header.jobs, pairwise(accumulate(counts, initial=0)), strict=True)
        )
    )


# No step is so far behind.
_NONE = -(1 << 63)


def _behind(row: JobProgressed) -> int:
    """Return how far the recoverable step is behind the first one: mostly it is not far."""
    return _NONE if row.recoverable_step is None else row.first_step - row.recoverable_step


def _planes(column: Sequence[int]) -> bytes:
    text = array("q", column).tobytes()
    return b"".join(text[place::_BYTES] for place in range(_BYTES))


def _columns(planes: bytes, sizes: Sequence[int]) -> Iterator[list[int]]:
    if len(planes) != _BYTES * sum(sizes) or min(sizes, default=0) < 0:
        raise ValueError("its columns have another length than it says")
    for size, end in zip(sizes, accumulate(sizes), strict=True):
        part = planes[_BYTES * (end - size) : _BYTES * end]
        text = bytearray(_BYTES * size)
        for place in range(_BYTES):
            text[place::_BYTES] = part[place * size : (place + 1) * size]
        yield array("q", bytes(text)).tolist()
