"""Table of seconds by step and worker: read from CSV or Parquet, row by row into columns."""

import csv
import gzip
import io
import math
import typing
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TextIO

import numpy as np

from everstep_common.printable import printable
from everstep_controller.slow.peers import Floats, Indices, Roster

_REQUIRED = ("step", "worker", "seconds")
PLACES = ("node", "leaf", "rack", "power")
_OPTIONAL = ("role", *PLACES)
# 100,000 workers for 1,000 steps; a row takes twelve bytes while reading, some thirty at the end.
ROWS_MAX = 100_000_000
# A table in which most workers miss most steps is a mistake, and would take memory for them all.
_CELLS_PER_ROW_MAX, _CELLS_FREE = 8, 10_000_000
_NAME_MAX = 200
_LINE_MAX = 65_536
# Eleven days; more is no step.
_SECONDS_MAX = 1e6
_LEAVE_OUT = "leave out the row of a worker that was not measured"
_STDIN = Path("-")
_GZIP = b"\x1f\x8b"
# What the required columns are often called.
_OTHER_NAMES = {
    "step": ("iteration", "iter", "global_step", "batch", "steps"),
    "worker": ("rank", "gpu", "host", "hostname", "process", "workers", "global_rank"),
    "seconds": ("time", "duration", "second", "sec", "s", "time_s", "seconds_s", "ms", "time_ms"),
}


class TableError(Exception):
    """A table cannot be read; the message says where and what, in a sentence."""


class MissingPackageError(Exception):
    """A package that is needed for this kind of file is not installed."""


@dataclass(frozen=True, slots=True)
class Table:
    """Seconds of each worker in each step, NaN where a row is missing."""

    roster: Roster
    steps: Indices
    # One row for each step, one column for each worker.
    seconds: Floats


def read_table(path: Path) -> Table:
    """Read a table. Raises TableError, and MissingPackageError for Parquet without pyarrow."""
    columns = _Columns()
    if _is_parquet(path):
        _read_parquet(path, columns)
    else:
        _read_csv(path, columns)
    return columns.table()


def _is_parquet(path: Path) -> bool:
    if path.is_dir():
        raise TableError(f"{path} is a folder: name one file, CSV or Parquet")
    if not path.is_file():  # a pipe can be read once
        return False
    try:
        with path.open("rb") as file:
            found = file.read(4) == b"PAR1"
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}") from error
    if path.suffix.lower() == ".parquet" and not found:
        raise TableError(f"{path} is no Parquet file, or not a whole one; CSV is named otherwise")
    return found


if typing.TYPE_CHECKING:
    import _csv

# --- rows ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Columns:
    """Rows read so far, as numbers."""

    names: dict[str, int] = field(default_factory=dict)
    steps: dict[int, int] = field(default_factory=dict)
    labels: dict[str, "_Labels"] = field(default_factory=dict)
    step_of: "array[int]" = field(default_factory=lambda: array("i"))
    worker_of: "array[int]" = field(default_factory=lambda: array("i"))
    seconds: "array[float]" = field(default_factory=lambda: array("f"))

    def add(self, step: int, worker: str, seconds: float, labels: Sequence[str]) -> None:
        """Add a row. Raises ValueError with what is wrong in it."""
        if not 0 < seconds <= _SECONDS_MAX:
            raise ValueError(_bad_seconds(seconds))
        number = self.names.get(worker)
        if number is None:
            number = self._begin(worker)
        for (kind, known), label in zip(self.labels.items(), labels, strict=True):
            if known.numbers.get(label) != known.of[number]:
                known.learn(kind, worker, number, label)
        self.step_of.append(self.steps.setdefault(step, len(self.steps)))
        self.worker_of.append(number)
        self.seconds.append(seconds)

    def _begin(self, worker: str) -> int:
        if not worker or len(worker) > _NAME_MAX or not worker.isprintable():
            raise ValueError(_bad_name(worker))
        self.names[worker] = number = len(self.names)
        for known in self.labels.values():
            known.of.append(-1)
        if number * len(self.steps) > _CELLS_PER_ROW_MAX * len(self.seconds) + _CELLS_FREE:
            raise ValueError("most workers miss most steps: a row is one worker in one step")
        return number

    def table(self) -> Table:
        """Return the table. Raises TableError."""
        if not self.seconds:
            raise TableError("the table has no rows below its header")
        if len(self.names) == 1:
            only = next(iter(self.names))
            raise TableError(
                f"the table has one worker only ({only}): who is slow shows beside others"
            )
        cells, workers = len(self.steps) * len(self.names), len(self.names)
        if cells > _CELLS_PER_ROW_MAX * len(self.seconds) + _CELLS_FREE:
            raise TableError("most workers miss most steps: a row is one worker in one step")
        step_of = np.frombuffer(self.step_of, dtype=np.int32).astype(np.int64)
        flat = step_of * workers + np.frombuffer(self.worker_of, dtype=np.int32)
        self._check_twice(flat, workers)
        seconds = np.full(cells, np.nan)
        seconds[flat] = np.frombuffer(self.seconds, dtype=np.float32)
        steps = np.fromiter(self.steps, dtype=np.int64, count=len(self.steps))
        order = np.argsort(steps)
        return Table(self._roster(), steps[order], seconds.reshape(-1, workers)[order])

    def _check_twice(self, flat: Indices, workers: int) -> None:
        seen = np.zeros(len(self.steps) * workers, dtype=bool)
        seen[flat] = True
        if np.count_nonzero(seen) == len(flat):
            return
        order = np.argsort(flat, kind="stable")
        again = order[1:][flat[order[1:]] == flat[order[:-1]]].min()
        step, worker = divmod(int(flat[again]), workers)
        raise TableError(
            f"row {int(again) + 1} below the first line tells step {list(self.steps)[step]} of "
            f"worker {list(self.names)[worker]} again: a worker has one row in a step. Keep the "
            "newest, where a job did steps again after a restart"
        )

    def _roster(self) -> Roster:
        role = self.labels.get("role")
        places = {kind: known for kind, known in self.labels.items() if kind != "role"}
        size = len(self.names)
        return Roster(
            names=list(self.names),
            roles=np.array(role.of) if role else np.zeros(size, dtype=np.int64),
            role_names=list(role.numbers) if role else [""],
            places={kind: np.array(known.of) for kind, known in places.items()},
            place_names={kind: list(known.numbers) for kind, known in places.items()},
        )


@dataclass(slots=True)
class _Labels:
    """One label of each worker, such as its role, as numbers."""

    numbers: dict[str, int] = field(default_factory=dict)
    of: list[int] = field(default_factory=list)

    def learn(self, kind: str, worker: str, number: int, label: str) -> None:
        """Take a worker's label. Raises ValueError where it was another before."""
        if len(label) > _NAME_MAX or not label.isprintable():
            raise ValueError(f"{printable(label[:40])!r} is no {kind}")
        if self.of[number] >= 0:
            before = list(self.numbers)[self.of[number]]
            raise ValueError(f"worker {worker} has {kind} {label!r}, and {before!r} above")
        self.of[number] = self.numbers.setdefault(label, len(self.numbers))


def _bad_name(worker: str) -> str:
    if not worker:
        return "worker is empty; each row names its worker"
    if len(worker) > _NAME_MAX:
        return f"the name of the worker, {worker[:20]}…, is longer than {_NAME_MAX} characters"
    return f"{printable(worker[:40])!r} is no name of a worker"


def _bad_seconds(seconds: float) -> str:
    if math.isnan(seconds):
        return f"seconds is NaN; {_LEAVE_OUT}"
    return f"seconds must be above 0, and no more than {_SECONDS_MAX:,.0f}, not {seconds:g}"


def _columns(found: Sequence[str]) -> tuple[list[int], list[str]]:
    """Return where the required columns and the told optional ones are, and the latter's names."""
    there = [name.strip().lower() for name in found]
    missing = [name for name in _REQUIRED if name not in there]
    if missing:
        shown = ", ".join(printable(name) for name in found[:20]) or "none"
        raise TableError(
            f"there is no column {' or '.join(missing)}; the first line names the columns, with "
            f"commas, semicolons or tabs between, and has: {shown}. Needed are step, worker and "
            f"seconds; there may be role, {', '.join(PLACES)}{_renamed(missing, there)}"
        )
    twice = next((name for name in (*_REQUIRED, *_OPTIONAL) if there.count(name) > 1), None)
    if twice:
        raise TableError(f"there are two columns {twice}")
    optional = [name for name in _OPTIONAL if name in there]
    return [there.index(name) for name in (*_REQUIRED, *optional)], optional


def _renamed(missing: Sequence[str], there: Sequence[str]) -> str:
    """Return which columns to rename, as another order to a person; "" for none that is known."""
    told = [
        f"{name} to {wanted}"
        for wanted in missing
        for name in _OTHER_NAMES[wanted]
        if name in there
    ]
    return f". Rename {', '.join(told)}" if told else ""


def _whole(text: str) -> int:
    try:
        # Programs write 7.0 where a column had gaps.
        value = int(text.removesuffix(".0"))
    except ValueError:
        raise ValueError(f"step {printable(text[:40])!r} is no whole number") from None
    if not -(2**62) < value < 2**62:
        raise ValueError(f"step {printable(text[:40])} is too large")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        if not text.strip():
            raise ValueError(f"seconds is empty; {_LEAVE_OUT}") from None
        if text.count(",") == 1 and "." not in text:  # as spreadsheets of half the world write it
            return _number(text.replace(",", "."))
        point = "; write a plain number, without a unit" if text[:1].isdigit() else ""
        raise ValueError(f"seconds {printable(text[:40])!r} is no number{point}") from None


# --- CSV -----------------------------------------------------------------------------------------


def _read_csv(path: Path, columns: _Columns) -> None:
    try:
        source = Path("/dev/stdin") if path == _STDIN else path
        with source.open("rb") as file, _text(file) as text:
            _read_lines(_lines(text), columns)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TableError(f"{path}: the gzip file is damaged, or not a whole one") from error
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TableError(
            f"{path} is neither Parquet nor a CSV in UTF-8; save it as CSV UTF-8"
        ) from error


def _text(file: io.BufferedReader) -> TextIO:
    packed = file.peek(2)[:2] == _GZIP
    plain = gzip.GzipFile(fileobj=file) if packed else file
    return io.TextIOWrapper(plain, encoding="utf-8-sig", newline="")


def _lines(file: TextIO) -> Iterator[str]:
    while line := file.readline(_LINE_MAX):
        if len(line) == _LINE_MAX or "\0" in line:
            raise TableError("this is neither CSV nor Parquet: its lines are no text, or too long")
        yield line


def _read_lines(lines: Iterator[str], columns: _Columns) -> None:
    first = next((line for line in lines if line.strip()), "")
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(chain([first], lines), delimiter=delimiter, strict=True)
    try:
        found = next(reader, [])
        at, optional = _columns(found)
        columns.labels.update((name, _Labels()) for name in optional)
        _read_rows(reader, at, len(found), columns)
    except csv.Error as error:
        raise TableError(
            f"line {reader.line_num}: {error}: a quote may be open since row "
            f"{len(columns.seconds) + 1} below the first line"
        ) from error


def _too_wide(found: int, width: int) -> str:
    return (
        f"{found} columns, where the first line has {width}; write 1.5, not 1,5, or put semicolons "
        "between the columns"
    )


def _read_rows(reader: "_csv.Reader", at: Sequence[int], width: int, columns: _Columns) -> None:
    step_at, worker_at, seconds_at, *rest = at
    last = max(at)
    for row in reader:
        try:
            if len(row) <= last:
                if not row:
                    continue
                raise ValueError(f"{len(row)} columns, where the first line has more")
            if any(row[width:]):
                raise ValueError(_too_wide(len(row), width))
            labels = [row[one] for one in rest]
            columns.add(_whole(row[step_at]), row[worker_at], _number(row[seconds_at]), labels)
        except ValueError as error:
            raise TableError(f"line {reader.line_num}: {error}") from error
        if len(columns.seconds) > ROWS_MAX:
            raise TableError(_too_many())


def _too_many() -> str:
    return f"more than {ROWS_MAX:,} rows; leave out steps"


# --- Parquet -------------------------------------------------------------------------------------


def _read_parquet(path: Path, columns: _Columns) -> None:
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError as error:
        raise MissingPackageError(str(error)) from error
    try:
        with parquet.ParquetFile(path) as file:
            found = list(file.schema_arrow.names)
            at, optional = _columns(found)
            columns.labels.update((name, _Labels()) for name in optional)
            wanted = [found[one] for one in at]
            if file.metadata.num_rows > ROWS_MAX:
                raise TableError(_too_many())
            for batch in file.iter_batches(columns=wanted):
                values = batch.to_pydict()
                _add_batch([values[name] for name in wanted], columns)
    except (ArrowException, OSError) as error:
        raise TableError(f"{path}: {str(error).splitlines()[0]}") from error


def _add_batch(values: Sequence[Sequence[object]], columns: _Columns) -> None:
    for step, worker, seconds, *labels in zip(*values, strict=True):
        try:
            told = ["" if one is None else str(one) for one in labels]
            columns.add(_whole(str(step)), str(worker), _number(str(seconds)), told)
        except ValueError as error:
            raise TableError(f"row {len(columns.seconds) + 1}: {error}") from error
