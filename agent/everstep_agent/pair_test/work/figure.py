"""Figure of the pair test: how long a fixed piece of work took, several times."""

import statistics
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured piece of work. ``amount`` of ``unit`` is done in each of ``seconds``."""

    # Equal on two nodes for work that may be compared: "gpu0 compute".
    name: str
    amount: float
    unit: str
    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """Return how long it usually takes, in seconds."""
        return statistics.median(self.seconds)

    @property
    def rate(self) -> float:
        """Return how much is usually done in a second, in ``unit``."""
        return self.amount / self.median_s

    @property
    def spread(self) -> float:
        """Return how far the slowest is from the fastest, as a share of the usual."""
        return (max(self.seconds) - min(self.seconds)) / self.median_s


@dataclass(frozen=True, slots=True)
class Untested:
    """Something that was not measured, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class WorkDone:
    """What one process of the pair test measured; of several rounds a figure each."""

    figures: tuple[Figure, ...] = ()
    untested: tuple[Untested, ...] = ()
    # The GPUs, as their driver calls them.
    models: tuple[str, ...] = ()
