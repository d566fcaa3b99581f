"""Shared data: which workers of other roles work on the same data, as their seconds tell.

The stages of a pipeline that belong to one replica compute the same sequences, so their seconds
rise and fall together. What they have in common is the data, and is taken out of the comparison.
"""

import math

import numpy as np
import numpy.typing as npt

from everstep_controller.slow.peers import Floats, Indices, Mask, Roster

# The products of all pairs are kept: 8 MB, a millisecond a step.
WORKERS_MAX = 1024
# By chance the best of 32 has such a correlation over so many steps once in 10,000 workers.
_CORRELATION_MAX, _STEPS_MIN = 0.9, 9
# Ours: the more steps, the less is chance. Five standard errors of Fisher's transform; below the
# least, taking a partner's seconds out leaves about as much noise as there was.
_ERRORS, _CORRELATION_LEAST = 5.0, 0.7
# A partner stays one while the correlation is no more than this below the limit.
_KEPT = 0.1
# So many steps are looked at often, and then whenever they have doubled.
_OFTEN, _OFTEN_EVERY = 64, 4
# A step counts by at most so many standard deviations, and not where most workers are as before:
# sequences of equal length that last for some steps are one observation.
_CHANGE_MAX, _CHANGE_MIN = 4.0, 0.3


class SharedData:
    """Finds by the changes from step to step who works on the same data. Its state is bounded."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        usable = roster.by_role.count > 1 and roster.size <= WORKERS_MAX
        size = roster.size if usable else 0
        self._products: npt.NDArray[np.float32] = np.zeros((size, size), dtype=np.float32)
        self._steps = 0
        self._before = np.full(roster.size, np.nan)
        # Of each worker, its partner in each role; -1: none.
        self.partners: Indices = np.empty((0, 0), dtype=np.int64)
        self.has_partner: Mask = np.zeros(roster.size, dtype=bool)

    def observe(self, ratios: Floats, noise: Floats) -> bool:
        """Take a step's ratios to peers; return whether partners are known that were not before."""
        if not len(self._products):
            return False
        change = (ratios - self._before) / np.fmax(noise, 1e-4)
        self._before = ratios
        if np.isnan(change).all():
            return False
        moved = bool(np.nanmedian(np.abs(change)) > _CHANGE_MIN)
        change = np.clip(np.nan_to_num(change), -_CHANGE_MAX, _CHANGE_MAX).astype(np.float32)
        self._products += change[:, None] * change
        self._steps += moved
        if not moved or self._steps < _STEPS_MIN or not self._due():
            return False
        return self._find()

    def _due(self) -> bool:
        steps = self._steps
        if steps > _OFTEN:
            return not steps & (steps - 1)
        return steps <= 20 or steps % _OFTEN_EVERY == 0

    def _least(self) -> float:
        """Return from which correlation on two work on the same data, after so many steps."""
        chance = math.tanh(_ERRORS / math.sqrt(self._steps - 3))
        return min(max(chance, _CORRELATION_LEAST), _CORRELATION_MAX)

    def _find(self) -> bool:
        spread = np.sqrt(np.fmax(np.diagonal(self._products), 1e-9))
        roles = self._roster.by_role
        partners = np.full((len(spread), roles.count), -1)
        for role in range(roles.count):
            members = np.flatnonzero(roles.of == role)
            correlation = self._products[:, members] / np.outer(spread, spread[members])
            best = np.argmax(correlation, axis=1)
            close = correlation[np.arange(len(best)), best] > self._least()
            partners[:, role] = np.where(close & (roles.of != role), members[best], -1)
            if len(self.partners):
                kept = self._kept(role, members, correlation)
                partners[:, role] = np.where(partners[:, role] < 0, kept, partners[:, role])
        found = partners if (partners >= 0).any() else np.empty((0, 0), dtype=np.int64)
        changed = not np.array_equal(found, self.partners)
        self.partners = found
        self.has_partner = np.asarray((partners >= 0).any(axis=1))
        return changed

    def _kept(self, role: int, members: Indices, correlation: Floats) -> Indices:
        """Return the partners in a role that were found before, and are close enough still."""
        before = self.partners[:, role]
        place = np.searchsorted(members, np.maximum(before, 0)) % len(members)
        close = correlation[np.arange(len(before)), place] > self._least() - _KEPT
        return np.asarray(np.where(close, before, -1))

    def without(self, ratios: Floats) -> Floats:
        """Return ratios without what a worker has in common with who works on the same data."""
        if not len(self.partners):
            return ratios
        padded = np.concatenate([ratios, np.full((*ratios.shape[:-1], 1), np.nan)], axis=-1)
        ordered = np.sort(padded[..., self.partners], axis=-1)  # NaN comes last
        known = np.count_nonzero(~np.isnan(ordered), axis=-1)[..., None]
        middle = np.take_along_axis(ordered, np.maximum(known - 1, 0) // 2, axis=-1)[..., 0]
        return np.asarray(ratios - np.nan_to_num(middle))
