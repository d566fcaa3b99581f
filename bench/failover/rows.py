"""Rows of the failover benchmark: from the samples of a fault to a figure and its target. Pure."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from harness.table import Row, Target

_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of one thing, one of each round, and the most that its figure may be."""

    name: str
    unit: str
    samples: Sequence[float]
    target: float | None = None
    # "p95", "median", or "sum" of what is counted.
    figure: str = "p95"


def p95(samples: Sequence[float]) -> float:
    """Return the sample that 95 % do not exceed: the nearest rank, not a value between two."""
    ordered = sorted(samples)
    return ordered[math.ceil(_SHARE * len(ordered)) - 1]


_FIGURES: Mapping[str, Callable[[Sequence[float]], float]] = MappingProxyType(
    {"p95": p95, "median": statistics.median, "sum": sum}
)


def rows_of(told: Samples) -> Iterator[Row]:
    """Yield the row of a figure, and that of the median beside a share."""
    if not told.samples:
        yield Row(name=f"{told.name}: no round came to an end", value=0.0, unit="", met=False)
        return
    spread = max(told.samples) - min(told.samples)
    target = None if told.target is None else Target(told.target)
    names = {"p95": f"p95 of {len(told.samples)}", "median": f"median of {len(told.samples)}"}
    value = _FIGURES[told.figure](told.samples)
    about = f", {names[told.figure]}" if told.figure in names else ""
    yield Row(
        name=f"{told.name}{about}",
        value=value,
        unit=told.unit,
        spread=0.0 if told.figure == "sum" else spread,
        target=str(target or ""),
        met=target.met(value) if target else None,
    )
    if told.figure == "p95":
        yield Row(
            name=f"{told.name}, median",
            value=statistics.median(told.samples),
            unit=told.unit,
            spread=spread,
        )
