"""Rows of the liveness benchmark: what a fault came to, round by round, and whether that is met."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Round:
    """One fault: seconds to the verdict, if it came, and what was harmed without need."""

    verdict_s: float | None
    # Nodes that were lost and could be reached, and restarts of a job whose ranks lived.
    false_losses: int
    false_restarts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One fault, and the verdict that is timed; without one, that there is none is the verdict."""

    what: str
    # "processes" of this machine, or "virtual time" around the real core.
    how: str
    verdict: str
    # The most that each round may take.
    target_s: float | None
    rounds: Sequence[Round]

    @property
    def times_s(self) -> list[float]:
        """Return the times to the verdict."""
        return [one.verdict_s for one in self.rounds if one.verdict_s is not None]

    @property
    def met(self) -> bool:
        """Return whether every round came to its verdict in time, and harmed nobody else."""
        harmed = any(one.false_losses or one.false_restarts for one in self.rounds)
        if harmed or not self.rounds:
            return False
        if not self.verdict:
            return True
        in_time = [s for s in self.times_s if self.target_s is None or s <= self.target_s]
        return len(in_time) == len(self.rounds)

    def as_json(self) -> dict[str, object]:
        """See Line."""
        times = self.times_s
        return {
            "name": self.what,
            "how": self.how,
            "rounds": len(self.rounds),
            "verdict": self.verdict or "none",
            "value": statistics.median(times) if times else None,
            "unit": "s",
            "spread": max(times) - min(times) if times else None,
            "false_losses": sum(one.false_losses for one in self.rounds),
            "false_restarts": sum(one.false_restarts for one in self.rounds),
            "target": self.target_s,
            "met": self.met,
        }

    @property
    def head(self) -> Sequence[str]:
        """See Line."""
        return _HEAD

    def cells(self) -> tuple[str, ...]:
        """See Line."""
        times = self.times_s
        return (
            self.what,
            self.how,
            str(len(self.rounds)),
            self.verdict or "none",
            f"{statistics.median(times):.2f}" if times else "",
            f"{max(times) - min(times):.2f}" if times else "",
            str(sum(one.false_losses for one in self.rounds)),
            str(sum(one.false_restarts for one in self.rounds)),
            "" if self.target_s is None else f"≤ {self.target_s:g}",
            "yes" if self.met else "no",
        )


_HEAD = (
    "fault",
    "how",
    "rounds",
    "verdict",
    "median s",
    "spread s",
    "false losses",
    "false restarts",
    "target s",
    "met",
)
