"""Rows of all benchmarks, and the tables of them: as they come, as Markdown, or as JSON."""

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Line(Protocol):
    """A line of a benchmark's table."""

    @property
    def head(self) -> Sequence[str]:
        """Return the names of its columns."""
        ...

    def cells(self) -> Sequence[str]:
        """Return what stands in them; the first one is its name."""
        ...

    def as_json(self) -> Mapping[str, object]:
        """Return all that is known of it."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """Target of a ratio, or of a value without one: its most, or its least."""

    bound: float
    at_least: bool = False

    def met(self, value: float) -> bool:
        """Return whether a value keeps to it."""
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {number(self.bound)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured value; ``ratio`` is that to the row named ``against``."""

    name: str
    value: float
    unit: str
    spread: float = 0.0
    against: str = ""
    ratio: float | None = None
    # Of the ratios of each round, where runs of a round belong together.
    ratio_low: float | None = None
    ratio_high: float | None = None
    target: str = ""
    met: bool | None = None

    @property
    def head(self) -> Sequence[str]:
        """See Line."""
        return _HEAD

    def cells(self) -> Sequence[str]:
        """See Line."""
        between = ""
        if self.ratio_low is not None and self.ratio_high is not None:
            between = f"{self.ratio_low:.2f} to {self.ratio_high:.2f}"
        return (
            self.name,
            number(self.value),
            self.unit,
            number(self.spread) if self.spread else "",
            "" if self.ratio is None else f"{self.ratio:.2f}",
            between,
            self.target,
            {None: "", True: "yes", False: "NO"}[self.met],
            self.against,
        )

    def as_json(self) -> Mapping[str, object]:
        """See Line."""
        return {name: getattr(self, name) for name in self.__slots__}


_HEAD = (
    *("what", "value", "unit", "spread", "ratio", "lowest to highest"),
    *("target", "met", "against"),
)


@dataclass(frozen=True, slots=True)
class Told:
    """A line of a table of its own, by column."""

    columns: Mapping[str, object]

    @property
    def head(self) -> Sequence[str]:
        """See Line."""
        return tuple(self.columns)

    def cells(self) -> Sequence[str]:
        """See Line."""
        return tuple(map(str, self.columns.values()))

    def as_json(self) -> Mapping[str, object]:
        """See Line."""
        return self.columns


@dataclass(frozen=True, slots=True)
class Series:
    """The repeats of one thing, in the order in which they ran."""

    name: str
    samples: Sequence[float]
    unit: str = "s"

    def figure(self, target: Target | None = None) -> Row:
        """Return the median alone."""
        value = statistics.median(self.samples)
        return Row(
            name=self.name,
            value=value,
            unit=self.unit,
            spread=max(self.samples) - min(self.samples),
            target=str(target or ""),
            met=target.met(value) if target else None,
        )

    def against(self, other: "Series", target: Target | None = None) -> Row:
        """Return the median, and that of the ratios to the other's repeats of the same round."""
        ratios = [mine / its for mine, its in zip(self.samples, other.samples, strict=True)]
        ratio = statistics.median(ratios)
        return Row(
            name=self.name,
            value=statistics.median(self.samples),
            unit=self.unit,
            spread=max(self.samples) - min(self.samples),
            against=other.name,
            ratio=ratio,
            ratio_low=min(ratios),
            ratio_high=max(ratios),
            target=str(target or ""),
            met=target.met(ratio) if target else None,
        )


def row(
    name: str,
    samples: Sequence[float],
    unit: str,
    against: Row | None = None,
    target: float | None = None,
) -> Row:
    """Return the median of the repeats, its ratio to another row, and whether it is low enough."""
    value = statistics.median(samples)
    most = None if target is None else Target(target)
    return Row(
        name=name,
        value=value,
        unit=unit,
        spread=max(samples) - min(samples),
        against=against.name if against else "",
        ratio=value / against.value if against and against.value else None,
        target=str(most or ""),
        met=most.met(value) if most else None,
    )


def number(value: float) -> str:
    """Return a number with three digits."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def lines(head: Sequence[str], body: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a Markdown table; columns that are empty are left out, those of numbers end right."""
    full = [at for at in range(len(head)) if any(line[at] for line in body)]
    cells = [[line[at] for at in full] for line in (head, *body)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(full))]
    numeric = [all(_is_number(line[at]) for line in cells[1:]) for at in range(len(full))]
    rule = ["-" * (w - n) + ":" * n for w, n in zip(widths, numeric, strict=True)]
    for line in (cells[0], rule, *cells[1:]):
        yield _joined(line, widths, numeric)


def _is_number(cell: str) -> bool:
    return not cell.strip("0123456789.,-+e")


def _joined(line: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = (
        text.rjust(width) if right else text.ljust(width)
        for text, width, right in zip(line, widths, numeric, strict=True)
    )
    return f"| {' | '.join(padded)} |"


class Manner(Enum):
    """Manner of printing: each line as it comes, or all at the end, and then as what."""

    AT_ONCE = "at once"
    MARKDOWN = "markdown"
    JSON = "json"


class Printer:
    """Printer of a benchmark's lines; what is printed at the end is shown at once beside it."""

    _FIRST, _LEAST = 58, 8

    def __init__(self, manner: Manner) -> None:
        self._manner = manner
        self._lines: list[Line] = []

    def add(self, line: Line) -> None:
        """Take a line."""
        out = sys.stdout if self._manner is Manner.AT_ONCE else sys.stderr
        widths = [self._FIRST, *(max(self._LEAST, len(name)) for name in line.head[1:-1]), 0]
        numeric = [False] * len(line.head)
        if not self._lines or self._lines[-1].head != line.head:
            print(_joined(line.head, widths, numeric), file=out)
        print(_joined(line.cells(), widths, numeric), file=out, flush=True)
        self._lines.append(line)

    def close(self) -> None:
        """Print what is to be printed at the end: of all that has come."""
        if self._manner is Manner.JSON:
            print(json.dumps([line.as_json() for line in self._lines], indent=1), flush=True)
        elif self._manner is Manner.MARKDOWN:
            while self._lines:
                head = self._lines[0].head
                same = [line for line in self._lines if line.head == head]
                self._lines = [line for line in self._lines if line.head != head]
                print("\n".join(lines(head, [line.cells() for line in same])), flush=True)
