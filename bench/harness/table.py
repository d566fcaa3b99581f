"""Output of all benchmarks: a table for people, or with --json a list of rows."""

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured value; ``ratio`` is value / value of the row named ``against``.

    ``target`` is the most that the value shall be, where it has one; then it is ``met`` or not.
    """

    name: str
    value: float
    unit: str
    against: str = ""
    ratio: float | None = None
    spread: float = 0.0
    target: float | None = None

    @property
    def met(self) -> bool | None:
        """Return whether the value is within its target; None: it has none."""
        return None if self.target is None else self.value <= self.target


def row(
    name: str,
    samples: Sequence[float],
    unit: str,
    against: Row | None = None,
    target: float | None = None,
) -> Row:
    """Return the median of the repeats; the spread is largest minus smallest, in the same unit."""
    value = statistics.median(samples)
    return Row(
        name=name,
        value=value,
        unit=unit,
        against=against.name if against else "",
        ratio=value / against.value if against and against.value else None,
        spread=max(samples) - min(samples),
        target=target,
    )


def arguments(description: str) -> argparse.ArgumentParser:
    """Return a parser with what every benchmark takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    parser.add_argument("--repeats", type=int, default=5, help="windows to take the median of")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a window")
    return parser


def told(entry: Row) -> dict[str, object]:
    """Return a row as JSON has it."""
    return {**asdict(entry), "met": entry.met}


def show(rows: Sequence[Row], as_json: bool) -> None:
    """Print the rows."""
    if as_json:
        print(json.dumps([told(entry) for entry in rows], indent=1))
        return
    head, cells = list(_HEAD), [_cells(entry) for entry in rows]
    if any(entry.target is not None for entry in rows):
        head += ["target", "met"]
        cells = [one + _target(entry) for one, entry in zip(cells, rows, strict=True)]
    for line in lines(head, cells, _NUMERIC):
        print(line)


def lines(
    head: Sequence[str], body: Sequence[Sequence[str]], numeric: Sequence[int]
) -> Iterator[str]:
    """Yield a Markdown table; the columns with these numbers are aligned to the right."""
    cells = [head, *body]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    rule = ["-" * width for width in widths]
    for line in (head, rule, *body):
        padded = (
            text.rjust(width) if column in numeric else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        yield "| " + " | ".join(padded) + " |"


_HEAD = ("what", "value", "unit", "spread", "ratio", "against")
_NUMERIC = (1, 3, 4)


def _cells(entry: Row) -> tuple[str, ...]:
    ratio = "" if entry.ratio is None else f"{entry.ratio:.2f}"
    return (
        entry.name,
        _number(entry.value),
        entry.unit,
        _number(entry.spread),
        ratio,
        entry.against,
    )


def _target(entry: Row) -> tuple[str, str]:
    if entry.target is None:
        return ("", "")
    return (f"≤ {_number(entry.target)}", "yes" if entry.met else "no")


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
