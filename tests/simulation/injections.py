"""Injection counts: how often each class of fault was injected, and what that shows."""

from collections import Counter
from collections.abc import Iterable, Iterator

# Name of the property in which a test hands over what it has injected.
PROPERTY = "injections"
_CONFIDENCE = 0.95


def upper_bound(injections: int) -> float:
    """Return the highest chance per injection that so many without a failure allow, at 95 %.

    A chance p stays unseen in n injections with (1 - p) ** n; the bound is where that is 5 %.
    """
    return 1 - (1 - _CONFIDENCE) ** (1 / injections) if injections else 1.0


def table(properties: Iterable[tuple[str, object]], failed: int) -> Iterator[str]:
    """Yield the lines of the table; none where nothing was injected."""
    counts = Counter[str]()
    for name, value in properties:
        if name == PROPERTY and isinstance(value, dict):
            counts.update(value)
    if not counts:
        return
    yield f"{'class of fault':28}{'injections':>12}{'95 % upper bound per injection':>34}"
    for kind, count in sorted(counts.items()):
        yield f"{kind:28}{count:>12,}{upper_bound(count):>34.4%}"
    if failed:
        yield f"The bounds do not hold: {failed} of the schedules failed."
    else:
        yield "No schedule has lost or isolated a node that could be reached, nor let a job wait."
