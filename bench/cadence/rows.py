"""Rows of the cadence benchmark: what faults cost a job at one length of step and size of state."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# Of training: `core.snapshot_cost_ignored_ratio`, and what noise of the costs may add to it.
SHARE = 0.01
_TOLERANCE = 1.25
# Where faults are frequent, snapshots may take twice what they would if the time between faults
# were known (Young's formula); the job has to learn it.
_LEARNT = 2.0


@dataclass(frozen=True, slots=True)
class Cell:
    """Length of a step and size of a rank's state."""

    step_s: float
    state_bytes: int

    def __str__(self) -> str:
        size = f"{self.state_bytes / (1 << 20):g} MiB"
        return f"{_seconds(self.step_s)}, {size if self.state_bytes < 1 << 30 else '2 GiB'}"


@dataclass(frozen=True, slots=True)
class Run:
    """A job with faults: steps that were repeated after each, and what snapshots took of its time.

    The share is of the time since the cost of a snapshot was known.
    """

    lost: tuple[int, ...]
    stall_share: float
    # Steps from one snapshot to the next, as it was in the end.
    every: int = 1
    # Steps that were to be saved and were not.
    unsaved: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One cell, as shipped and with a snapshot at every step."""

    cell: Cell
    # "processes" of this machine, or "virtual time" around the real cadence.
    how: str
    stall_s: float
    # Between two faults, on average.
    between_s: float
    shipped: Run
    every_step: Run

    @property
    def lost_max(self) -> int:
        """Return the most steps that a fault may repeat: 0, or as many as the share allows."""
        share = self.stall_s / (SHARE * self.cell.step_s)
        return 0 if share < 1 else math.ceil(_TOLERANCE * share)

    @property
    def share_max(self) -> float:
        """Return the most of training that snapshots may take."""
        young = math.sqrt(self.stall_s / (2 * self.between_s))
        return max(_TOLERANCE * SHARE, _LEARNT * young)

    @property
    def met(self) -> bool:
        """Return whether no fault cost more than it may, nor the snapshots of the whole run."""
        in_share = self.shipped.stall_share <= self.share_max
        return bool(self.shipped.lost) and max(self.shipped.lost) <= self.lost_max and in_share

    def as_json(self) -> dict[str, object]:
        """See Line."""
        return {
            "name": str(self.cell),
            "how": self.how,
            "step_s": self.cell.step_s,
            "state_bytes": self.cell.state_bytes,
            "stall_s": self.stall_s,
            "every": self.shipped.every,
            "faults": len(self.shipped.lost),
            "unsaved": self.shipped.unsaved,
            "value": statistics.mean(self.shipped.lost) if self.shipped.lost else None,
            "unit": "steps lost per fault",
            "lost_max": max(self.shipped.lost, default=None),
            "stall_share": self.shipped.stall_share,
            "every_step_lost": statistics.mean(self.every_step.lost or [math.nan]),
            "every_step_stall_share": self.every_step.stall_share,
            "target": self.lost_max,
            "target_stall_share": self.share_max,
            "between_faults_s": self.between_s,
            "met": self.met,
        }

    @property
    def head(self) -> Sequence[str]:
        """See Line."""
        return _HEAD

    def cells(self) -> tuple[str, ...]:
        """See Line."""
        return (
            str(self.cell),
            self.how,
            f"{self.stall_s * 1e3:.3g}",
            str(self.shipped.every),
            str(len(self.shipped.lost)),
            _lost(self.shipped.lost),
            str(self.shipped.unsaved),
            f"≤ {self.lost_max}",
            f"{100 * self.shipped.stall_share:.2f}",
            f"≤ {100 * self.share_max:.3g}",
            _lost(self.every_step.lost),
            f"{100 * self.every_step.stall_share:.3g}",
            "yes" if self.met else "no",
        )


def _seconds(value: float) -> str:
    return f"{value:g} s" if value >= 1 else f"{value * 1e3:g} ms"


def _lost(lost: Sequence[int]) -> str:
    return f"{statistics.mean(lost):.3g} ({max(lost)})" if lost else "none came"


_HEAD = (
    "step, state",
    "how",
    "a snapshot stalls, ms",
    "one step in",
    "faults",
    "steps lost per fault (most)",
    "unsaved",
    "target",
    "stalled, %",
    "target",
    "every step: lost (most)",
    "stalled, %",
    "met",
)
