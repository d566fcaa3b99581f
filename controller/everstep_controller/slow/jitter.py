"""Jitter: how much more the steps of one worker jump about than those of its peers.

The noise of a role says what is usual of its workers. One that shares its host with others, or
whose data stalls, has more of it, and then its steps say less.
"""

import math

import numpy as np

from everstep_controller.slow.peers import (
    MAD_TO_SIGMA,
    OWN_SPREAD_MIN,
    Floats,
    Roster,
    row_medians,
    upper,
)

# Ours: what is usual of a worker is that of so many steps.
_STEPS = 64
# Ours: a change from one step to the next counts by at most so many times what is usual.
_CHANGE_MAX = 3.0
# Ours: what is usual of a worker is told by so many steps, and known from so many on.
_LEVEL_STEPS, _LEVEL_MIN = 20, 5
# Ours: where some steps take longer, the median deviation does not see it, but what 85 % of them do
# not exceed does. Of Student-t(3), for whose tails the thresholds are, that is 1.1 deviations, and
# of 16 workers by chance 1.4.
_UPPER_DEVIATIONS = 1.4
# Ours: what is surely so is two standard errors below what is seen.
_ERRORS = 2.0
# Of a normal distribution the mean change is so many standard deviations.
_MEAN_CHANGE = 1.128


class Jitter:
    """Mean changes from step to step of each worker. Its state is four numbers for each."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._before = np.full(roster.size, np.nan)
        self._change = np.full(roster.size, np.nan)
        self._steps = np.zeros(roster.size)
        self._level = np.full(roster.size, np.nan)

    def upper_noise(self, ratios: Floats) -> Floats:
        """Return the noise of each worker's role by its longer steps, as one standard deviation."""
        beyond = np.where(self._steps < _LEVEL_MIN, np.nan, ratios - self._level)
        return upper(beyond, self._roster) / _UPPER_DEVIATIONS

    def observe(self, ratios: Floats) -> None:
        """Take a step's ratios to peers; NaN where a worker told nothing."""
        rate = 1 / np.minimum(self._steps + 1, _LEVEL_STEPS)
        level = np.where(np.isnan(self._level), ratios, self._level + rate * (ratios - self._level))
        self._level = np.where(np.isnan(ratios), self._level, level)
        change = np.abs(ratios - self._before)
        self._before = np.where(np.isnan(ratios), self._before, ratios)
        known = ~np.isnan(change)
        if not known.any():
            return
        usual = np.fmax(self._change, np.median(change[known]))
        change = np.minimum(change, _CHANGE_MAX * usual)
        self._steps += known
        rate = 1 / np.clip(self._steps, 1, _STEPS)
        follow = np.where(
            np.isnan(self._change), change, self._change + rate * (change - self._change)
        )
        self._change = np.where(known, follow, self._change)

    def factors(self) -> Floats:
        """Return by worker how many times the noise of its peers it surely has; 1 or more."""
        roles = self._roster.by_role
        known = self._change[~np.isnan(self._change)]
        if not len(known):
            return np.ones(self._roster.size)
        usual = np.full(self._roster.size, float(np.median(known)))
        if roles.count > 1:
            own = (roles.sizes >= OWN_SPREAD_MIN)[roles.of]
            usual = np.where(own, roles.medians(self._change).of_group[roles.of], usual)
        sure = 1 + _ERRORS / np.sqrt(np.clip(self._steps, 1, _STEPS))
        return np.asarray(np.fmax(1.0, self._change / np.fmax(usual, 1e-9) / sure))


def jumps(steps: Floats) -> Floats:
    """Return the noise of each column by its changes from step to step, as a standard deviation."""
    changes = np.abs(np.diff(steps, axis=0))
    known = np.count_nonzero(~np.isnan(changes), axis=0)
    return np.asarray(np.nansum(changes, axis=0) / np.maximum(known, 1) / _MEAN_CHANGE)


def window_noise(values: Floats) -> Floats:
    """Return the noise that each column of few steps surely has, as one standard deviation."""
    middle = row_medians(values.T)
    deviations = row_medians(np.abs(values - middle).T)
    return np.asarray(MAD_TO_SIGMA * deviations / (1 + _ERRORS / math.sqrt(len(values))))


def at_least(count: int, of: int, share: float) -> float:
    """Return how probable it is that so many of some steps are long, as this share of all is."""
    return sum(
        math.comb(of, one) * share**one * (1 - share) ** (of - one) for one in range(count, of + 1)
    )
