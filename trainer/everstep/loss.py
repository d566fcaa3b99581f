"""Loss watch: judges by the script's policy whether a loss is bad, and what follows. Pure."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from everstep_common.rank_messages import DataRange

OnBad = Literal["ignore", "raise", "rollback"]
# A loss is a spike among the last 32, and never among fewer than 8: less shows nothing usual.
_WINDOW = 32
_WINDOW_MIN = 8


class BadStepError(RuntimeError):
    """A step whose loss is no number or a spike: this process should end, its job goes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossPolicy:
    """Policy of a training script about bad losses."""

    on_nan: OnBad = "ignore"
    on_spike: OnBad = "ignore"
    # A loss above so many times the median of the last ones is a spike; 0: only what is said to be.
    spike_ratio: float = 0.0
    # So many batches, up to the bad one, are left out after a rollback.
    skip_batches: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError for what is none of the choices."""
        for name, chosen in (("on_nan", self.on_nan), ("on_spike", self.on_spike)):
            if chosen not in ("ignore", "raise", "rollback"):
                raise ValueError(
                    f"{name}: expected 'ignore', 'raise' or 'rollback', got {chosen!r}"
                )
        if not (self.spike_ratio == 0 or 1 < self.spike_ratio < math.inf):
            raise ValueError(f"spike_ratio: expected 0 or above 1, got {self.spike_ratio!r}")
        if self.skip_batches < 0:
            raise ValueError(f"skip_batches: expected 0 or more, got {self.skip_batches!r}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on a step: what is wrong with it, and what the policy has done about it."""

    sentence: str
    then: OnBad


@dataclass(slots=True)
class LossWatch:
    """Judge of a run's losses, one after the other."""

    policy: LossPolicy
    _last: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    def judge(self, step: int, loss: float, *, spike: bool) -> Verdict | None:
        """Return what is wrong, or None; a bad loss is no measure for the next ones."""
        if not math.isfinite(loss):
            return Verdict(f"step {step}: the loss is {loss}", self.policy.on_nan)
        if spike:
            return Verdict(f"step {step}: the loss {loss:.6g} is a spike", self.policy.on_spike)
        if usual := self._exceeded(loss):
            sentence = f"step {step}: the loss {loss:.6g} is a spike, {usual:.6g} was usual"
            return Verdict(sentence, self.policy.on_spike)
        self._last.append(loss)
        return None

    def _exceeded(self, loss: float) -> float:
        """Return the usual loss if this one is far above it, else 0."""
        if not self.policy.spike_ratio or len(self._last) < _WINDOW_MIN:
            return 0.0
        usual = median(self._last)
        return usual if 0 < usual * self.policy.spike_ratio < loss else 0.0


def batch_index(step: int, skipped: Sequence[DataRange]) -> int:
    """Return which batch a step takes: the one of its number, moved past what is left out."""
    index = step
    for one in skipped:
        if index < one.first:
            break
        index += one.last - one.first + 1
    return index


def range_to_skip(step: int, skipped: Sequence[DataRange], batches: int) -> DataRange:
    """Return so many batches of data up to a bad step's."""
    last = batch_index(step, skipped)
    return DataRange(max(0, last - batches + 1), last)
