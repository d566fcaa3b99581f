"""Figures of the vault benchmarks: a median beside its limit or peer, as a ratio of paired runs."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from harness.table import lines

_HEAD = (
    "what",
    "value",
    "unit",
    "spread",
    "ratio",
    "lowest to highest",
    "against",
    "target",
    "met",
)
_NUMERIC = (1, 3, 4)


@dataclass(frozen=True, slots=True)
class Target:
    """Target of a ratio, or of a value without one: its most, or its least."""

    bound: float
    at_least: bool = False

    def met(self, value: float) -> bool:
        """Return whether a value keeps to it."""
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value; ``ratio`` is the median of the ratios of runs that belong together."""

    name: str
    value: float
    unit: str
    spread: float = 0.0
    against: str = ""
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    target: str = ""
    met: bool | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """The repeats of one thing, in the order in which they ran."""

    name: str
    samples: Sequence[float]
    unit: str = "s"

    def figure(self, target: Target | None = None) -> Figure:
        """Return the median alone."""
        value = statistics.median(self.samples)
        return Figure(
            name=self.name,
            value=value,
            unit=self.unit,
            spread=max(self.samples) - min(self.samples),
            target=str(target or ""),
            met=target.met(value) if target else None,
        )

    def against(self, other: "Series", target: Target | None = None) -> Figure:
        """Return the median, and that of the ratios to the other's repeats of the same round."""
        ratios = [mine / its for mine, its in zip(self.samples, other.samples, strict=True)]
        ratio = statistics.median(ratios)
        return Figure(
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


def show(figures: Sequence[Figure], as_json: bool) -> None:
    """Print the figures."""
    if as_json:
        print(json.dumps([asdict(figure) for figure in figures], indent=1))
        return
    for line in lines(_HEAD, [_cells(figure) for figure in figures], _NUMERIC):
        print(line)


def _cells(figure: Figure) -> tuple[str, ...]:
    between = ""
    if figure.ratio_low is not None and figure.ratio_high is not None:
        between = f"{figure.ratio_low:.2f} to {figure.ratio_high:.2f}"
    return (
        figure.name,
        _number(figure.value),
        figure.unit,
        _number(figure.spread),
        "" if figure.ratio is None else f"{figure.ratio:.3f}",
        between,
        figure.against,
        figure.target,
        {None: "", True: "yes", False: "NO"}[figure.met],
    )


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
