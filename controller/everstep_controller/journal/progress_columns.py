"""Progress columns: the steps of all jobs within a second as one row, a column for each field.

A column takes of each number the bits by which its largest and its smallest one differ: the ends of
a second of steps differ in 20 of 64, most others in fewer.
"""

import zlib
from collections.abc import Sequence
from itertools import accumulate, pairwise

import msgspec

from everstep_common.reports import StepPause
from everstep_controller.core.events import JobProgressed

# Steps are told in whole microseconds, in general.
_UNITS = (1000, 1)
_LEVEL = 9
_BITS_MAX = 64
# Ids of jobs end in a number of no more digits.
_DIGITS_MAX = 15


class _Column(msgspec.Struct, array_like=True):
    """Numbers, each as what it is above the least, in so many bits, the first one foremost."""

    least: int
    bits: int
    packed: bytes

    @classmethod
    def of(cls, numbers: Sequence[int]) -> "_Column":
        least = min(numbers, default=0)
        bits = (max(numbers, default=0) - least).bit_length()
        text = "".join(f"{number - least:0{bits}b}" for number in numbers) if bits else ""
        return cls(least, bits, int(text or "0", 2).to_bytes((len(text) + 7) // 8, "big"))

    def numbers(self, count: int) -> list[int]:
        """Return the numbers. Raises ValueError."""
        size = count * self.bits
        if not 0 <= self.bits <= _BITS_MAX or len(self.packed) != (size + 7) // 8:
            raise ValueError("a column has another length than it says")
        if not self.bits:
            return [self.least] * count
        text = f"{int.from_bytes(self.packed, 'big'):0{size}b}"
        if len(text) > size:
            raise ValueError("a column has more than it says")
        return [
            self.least + int(text[begin : begin + self.bits], 2)
            for begin in range(0, size, self.bits)
        ]


class _Columns(msgspec.Struct, array_like=True):
    """Rows and their steps, column by column; ids of jobs in two parts."""

    rows: int
    steps: int
    unit_ns: int
    # Compressed, in lines.
    names: bytes
    # One more than the number at the end of an id; 0 where there is none.
    numbers: _Column
    generations: _Column
    first_steps: _Column
    counts: _Column
    # Whether a step is recoverable, and how far behind the first one it is.
    recoverable: _Column
    behind: _Column
    skipped: _Column
    # Of all steps.
    ends: _Column
    stalls: _Column
    # What was declared to be no step: the row, and within it the step, the kind, and how long;
    # compressed, and empty in most.
    pauses: bytes = b""


_PAUSES = list[tuple[int, StepPause]]
_DECODER = msgspec.msgpack.Decoder(_Columns)
# A row holds no more steps of all jobs than this.
_STEPS_MAX = 1 << 24


def pack(rows: Sequence[JobProgressed]) -> bytes:
    """Return rows as columns. Raises OverflowError for numbers of more than 64 bits."""
    ends = [end_ns for row in rows for end_ns in row.end_ns]
    stalls = [stall_ns for row in rows for stall_ns in row.stall_ns]
    unit_ns = next(unit for unit in _UNITS if not any(ns % unit for ns in (*ends, *stalls)))
    jobs = [_in_parts(row.job) for row in rows]
    recoverable = [row.recoverable_step for row in rows]
    columns = _Columns(
        rows=len(rows),
        steps=len(ends),
        unit_ns=unit_ns,
        names=zlib.compress(msgspec.json.encode([name for name, _ in jobs]), _LEVEL),
        numbers=_Column.of([number for _, number in jobs]),
        generations=_Column.of([row.generation for row in rows]),
        first_steps=_Column.of([row.first_step for row in rows]),
        counts=_Column.of([len(row.end_ns) for row in rows]),
        recoverable=_Column.of([int(step is not None) for step in recoverable]),
        behind=_Column.of(
            [
                0 if step is None else row.first_step - step
                for row, step in zip(rows, recoverable, strict=True)
            ]
        ),
        skipped=_Column.of([row.snapshots_skipped for row in rows]),
        ends=_Column.of([end_ns // unit_ns for end_ns in ends]),
        stalls=_Column.of([stall_ns // unit_ns for stall_ns in stalls]),
        pauses=_packed_pauses(rows),
    )
    return msgspec.msgpack.encode(columns)


def unpack(body: bytes) -> tuple[JobProgressed, ...]:
    """Return the rows again. Raises ValueError, zlib.error, msgspec.MsgspecError."""
    told = _DECODER.decode(body)
    names = msgspec.json.decode(zlib.decompress(told.names), type=list[str])
    if len(names) != told.rows or not 0 <= told.steps <= _STEPS_MAX:
        raise ValueError("it has other rows than it says")
    counts = told.counts.numbers(told.rows)
    if sum(counts) != told.steps or min(counts, default=0) < 0:
        raise ValueError("it has other steps than it says")
    ends, stalls = (
        [number * told.unit_ns for number in column.numbers(told.steps)]
        for column in (told.ends, told.stalls)
    )
    fields = (told.numbers, told.generations, told.first_steps, told.recoverable, told.behind)
    columns = [column.numbers(told.rows) for column in (*fields, told.skipped)]
    steps = [slice(*one) for one in pairwise(accumulate(counts, initial=0))]
    pauses = _unpacked_pauses(told.pauses, told.rows)
    return tuple(
        JobProgressed(
            job=f"{name}-{number - 1}" if number else name,
            generation=generation,
            first_step=first_step,
            end_ns=tuple(ends[own]),
            stall_ns=tuple(stalls[own]),
            recoverable_step=first_step - behind if recoverable else None,
            snapshots_skipped=skipped,
            pauses=tuple(paused),
        )
        for name, own, paused, number, generation, first_step, recoverable, behind, skipped in zip(
            names, steps, pauses, *columns, strict=True
        )
    )


def _packed_pauses(rows: Sequence[JobProgressed]) -> bytes:
    pauses = [(place, pause) for place, row in enumerate(rows) for pause in row.pauses]
    return zlib.compress(msgspec.json.encode(pauses), _LEVEL) if pauses else b""


def _unpacked_pauses(packed: bytes, rows: int) -> list[list[StepPause]]:
    """Return the pauses of each row. Raises ValueError."""
    found: list[list[StepPause]] = [[] for _ in range(rows)]
    told = msgspec.json.decode(zlib.decompress(packed), type=_PAUSES) if packed else []
    for place, pause in told:
        if not 0 <= place < rows:
            raise ValueError("a pause is of a row that there is not")
        found[place].append(pause)
    return found


def _in_parts(job: str) -> tuple[str, int]:
    """Return the name in an id, and one more than its number; the id and 0 where it has none."""
    name, dash, number = job.rpartition("-")
    decimal = dash and number.isascii() and number.isdecimal() and len(number) <= _DIGITS_MAX
    if decimal and str(int(number)) == number:
        return name, int(number) + 1
    return job, 0
