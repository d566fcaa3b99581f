"""Slot patience: how long a rank may wait for a free slot before it goes on without one. Pure.

A wait holds back all ranks of the job, since their collectives wait for the one that waits. Where
ranks are out of phase, what would free its slots is the next commit of another one, which stands
in a collective: such a wait is in vain, and only its bound ends it. So there is one wait for each
recoverable step. What is freed because it can never become recoverable allows none anew: the rank
takes the slot, and without one it goes on at once. A new rule of the cadence allows one: at its
first step all ranks save, as far as they can, and that frees the slots of the others.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from everstep_agent.vault.snapshots.cadence import CadenceRule
from everstep_agent.vault.snapshots.copies import Recoverable
from everstep_agent.vault.snapshots.slots import SlotState, SnapshotSlot
from everstep_common.reports import Turnover

# A slot that gets free at all does so within this many times of what it took lately at most.
_LONGER = 4.0
# What is no wait yet for training, and longer than any change of the measured time by chance.
_WAIT_MIN_S = 0.5
_TIMES_KEPT = 64


@dataclass(frozen=True, slots=True)
class VainWait:
    """The wait of a rank that failed last: what was so then, and why it failed."""

    # What was recoverable, and the rule of the cadence; None: there was no such wait.
    since: tuple[int, int | None, CadenceRule] | None = None
    reason: str = ""

    @classmethod
    def under(cls, recoverable: Recoverable, rule: CadenceRule, reason: str) -> "VainWait":
        """Return a wait that failed just now, at a step under this rule."""
        return cls((recoverable.generation, recoverable.step, rule), reason)

    def holds(self, recoverable: Recoverable, rule: CadenceRule) -> bool:
        """Return whether nothing newer became recoverable since, at a step under this rule."""
        return self.since == (recoverable.generation, recoverable.step, rule)


class SlotTurnover:
    """Measured times from a commit until its slot is free again, of one rank."""

    def __init__(self) -> None:
        # When what is in a slot was committed, by its epoch.
        self._committed_s: dict[int, float] = {}
        self._times_s: deque[float] = deque(maxlen=_TIMES_KEPT)

    def record_commit(self, epoch: int, now_s: float) -> None:
        """A copy was committed."""
        self._committed_s[epoch] = now_s

    def record_slots(self, slots: Sequence[SnapshotSlot], now_s: float) -> None:
        """Look which commits are in no slot any more."""
        taken = (SlotState.COMMITTED, SlotState.VERIFIED)
        held = {slot.epoch for slot in slots if slot.state in taken}
        for epoch in self._committed_s.keys() - held:
            self._times_s.append(now_s - self._committed_s.pop(epoch))

    @property
    def times_s(self) -> tuple[float, ...]:
        """Return the newest times, oldest first."""
        return tuple(self._times_s)

    def bound_wait_s(self, wait_s: float) -> float:
        """Return how much of a wait is worth it; all of it before anything was measured."""
        if not self._times_s:
            return wait_s
        return min(wait_s, max(_WAIT_MIN_S, _LONGER * max(self._times_s)))


def summarize_turnover(slots: int, measured: Iterable[SlotTurnover]) -> Turnover | None:
    """Return what ranks that have so many slots each have measured; None: nothing yet."""
    times_s = sorted(chain.from_iterable(one.times_s for one in measured))
    if not times_s:
        return None
    p50_s, p99_s = (times_s[math.ceil(share * len(times_s)) - 1] for share in (0.5, 0.99))
    return Turnover(slots, round(p50_s * 1e9), round(p99_s * 1e9))
