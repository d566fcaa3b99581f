"""Amounts as a report writes them: seconds as people say them, shares, and times in UTC. Pure."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime

_NS = 1_000_000_000
# Of which a longer time has fewer than so many: the unit, its size, and what is below it.
_UNITS = (
    (60, 60, "min", 1, "s"),
    (24, 3600, "h", 60, "min"),
    (math.inf, 86_400, "d", 3600, "h"),
)
_STEPS_S = (1, 5, 15, 60, 300, 900, 3600, 10_800, 21_600, 43_200, 86_400, 604_800, 2_592_000)


def span(seconds: float) -> str:
    """Return how long, in at most two units.

    >>> [span(one) for one in (0.0421, 7.3, 200, 5000, 187_200)]
    ['42 ms', '7.3 s', '3 min 20 s', '1 h 23 min', '2 d 4 h']
    """
    if seconds < 0:
        return f"\N{MINUS SIGN}{span(-seconds)}"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    _, size, unit, smaller, word = next(one for one in _UNITS if whole < one[0] * one[1])
    rest = whole % size // smaller
    return f"{whole // size} {unit}" + (f" {rest} {word}" if rest else "")


def share(part: float, whole: float) -> str:
    """Return a part in percent, with as many digits as tell it from nothing and from all.

    >>> [share(part, 100) for part in (95.51, 0.02, 99.996, 0.00001, 0, 100)]
    ['95.5 %', '0.02 %', '99.996 %', '< 0.0001 %', '0.0 %', '100.0 %']
    """
    if whole <= 0:
        return "0 %"
    percent = 100 * part / whole
    digits = 1
    while digits < 4 and round(percent, digits) in (0, 100) and percent not in (0, 100):
        digits += 1
    if percent and not round(percent, digits):
        return f"< {10**-digits:.{digits}f} %"
    return f"{percent:.{digits}f} %"


def moment(at_ns: int) -> str:
    """Return a time to the second, in UTC."""
    return f"{datetime.fromtimestamp(at_ns / _NS, UTC):%Y-%m-%d %H:%M:%S}"


def ticks(begin_ns: int, end_ns: int, most: int) -> Iterator[tuple[int, str]]:
    """Yield times at whole hours or days between two, at most so many, and their words."""
    length_s = max(1, (end_ns - begin_ns) / _NS)
    step_s = next((one for one in _STEPS_S if length_s / one <= most), _STEPS_S[-1])
    at_s = math.ceil(begin_ns / _NS / step_s) * step_s
    form = "%Y-%m-%d" if step_s >= 86_400 else "%m-%d %H:%M" if length_s > 86_400 else "%H:%M:%S"
    while at_s * _NS <= end_ns:
        yield at_s * _NS, f"{datetime.fromtimestamp(at_s, UTC):{form}}"
        at_s += step_s
