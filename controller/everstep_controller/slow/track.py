"""Track of ratios to peers by worker: their newest steps, their noise, and who is beyond it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from everstep_controller.slow.jitter import Jitter, at_least, jumps, window_noise
from everstep_controller.slow.losses import returning, stalling
from everstep_controller.slow.peers import (
    MAD_TO_SIGMA,
    Floats,
    Indices,
    Mask,
    Roster,
    middle_means,
    row_medians,
    spread,
)
from everstep_controller.slow.places import SlowPlace, SlowPlaces

_NOISE_FOLLOW, _NOISE_EVERY = 0.1, 4
_NOISE_LEAST, _RATIO_FOLLOW = 1e-6, 0.05
# Thresholds are for so many workers.
_FEW = 64
# Ours: of so many workers it is known how usual a long step is; what is less probable is no chance.
_SAMPLE, _CHANCE_MAX = 1024, 1e-6
# From so many steps it is known what is usual of a worker without peers.
USUAL_STEPS = 10


@dataclass(frozen=True, slots=True)
class Rules:
    """Thresholds. Ratios are logarithms of seconds to those of peers: 0.03 is 3 % slower."""

    # CUSUM, as it was published: k = max(3 %, sigma), h = 8 sigma.
    slack: float = 0.03
    alarm: float = 8.0
    # Ours: what one step adds at most, so that a pause alone nominates nobody.
    added_max: float = 4.0
    # Judgement: published are the median of 10 steps, > 3 %, robust z > 5, slower in 80 % of the
    # steps, and no spread below 0.7 %. Ours: the middle of the steps, longer windows that see
    # smaller slowdowns, and more deviations, as tails are heavy: steps, deviations of each.
    windows: tuple[tuple[int, float], ...] = ((10, 7.0), (15, 6.0), (20, 5.5))
    ratio: float = 0.03
    share_of_steps: float = 0.8
    # Ours: a step is slower that has so much of the middle; steps between pauses have not.
    step_share: float = 0.25
    spread_floor: float = 0.007
    # Ours: and so much of it where it is too far above the noise for less.
    sure_step_share: float = 0.5
    # Ours: a step counts by at most so many deviations above what is usual in its window. A pause
    # says nothing of the speed of the other steps, however long it is.
    step_deviations_max: float = 3.0
    # Ours: of so many deviations, noise makes no step as fast as those of peers.
    sure_deviations: float = 8.0
    # Ours: of the floor, which stands for what two healthy workers differ by.
    floor_deviations: float = 5.0
    # Ours: who was slow is so until the middle of ten steps is below half of what made it slow.
    cleared_ratio: float = 0.015
    # Ours: where more of a role are slow than this, its members do different work, but for those
    # that are three times as far off as those that do.
    share_of_role_max: float = 0.2
    apart: float = 3.0

    def known_min(self, window: int) -> int:
        """Return in how many steps of a window a worker must be known, and be slower."""
        return int(np.ceil(self.share_of_steps * window))


@dataclass(frozen=True, slots=True)
class Middles:
    """Middles of a window that ends with this step, and what they must exceed to be slow."""

    of_window: Floats
    limit: Floats
    rows: Indices
    deviations: float


class Track:
    """Ratios of one kind by worker: their newest steps, their noise, their sums."""

    def __init__(self, roster: Roster, alone: Mask, rules: Rules) -> None:
        self._roster, self._alone, self._rules = roster, alone, rules
        self._longest = max(steps for steps, _ in rules.windows)
        # The newest steps, in a ring.
        self.ring = np.full((self._longest, roster.size), np.nan)
        self.noise = np.full(roster.size, np.nan)
        self.sums = np.zeros(roster.size)
        # Since which step each worker's sum has been above zero.
        self.since: Indices = np.zeros(roster.size, dtype=np.int64)
        self._jitter = Jitter(roster)
        # By the length of a window, how much the middles of all spread.
        self._across: dict[int, Floats] = {}
        # How many times more that is than their noise explains, over time.
        self._usual_ratio: dict[int, Floats] = {}
        self._steps = 0

    def add(self, step: int, ratios: Floats, own_noise: Floats) -> None:
        """Take the ratios of a step."""
        self.ring[self._steps % self._longest] = ratios
        if self._steps < self._longest or self._steps % _NOISE_EVERY == 0:
            self._learn_noise(ratios, own_noise)
        self._jitter.observe(np.where(self._alone, np.nan, ratios))
        self._nominate(step, ratios)
        self._steps += 1

    def _learn_noise(self, ratios: Floats, own_noise: Floats) -> None:
        noise = np.where(self._alone, own_noise, self._noise_of(ratios))
        known = self.noise + _NOISE_FOLLOW * (noise - self.noise)
        self.noise = np.where(np.isnan(known), noise, known)

    def _noise_of(self, ratios: Floats) -> Floats:
        """Return the noise of one step as its workers show it, by their roles."""
        ratios = np.where(self._alone, np.nan, ratios)
        beyond = self._jitter.upper_noise(ratios)
        return np.fmax(spread(ratios, self._roster), beyond)

    @property
    def nominees(self) -> Mask:
        """Return whose sums are above the alarm."""
        return self.sums > self._rules.alarm

    def _nominate(self, step: int, ratios: Floats) -> None:
        """One-sided CUSUM of the ratios, in standard deviations."""
        rules = self._rules
        slack = np.fmax(self.noise, rules.slack)
        added = (ratios - slack) / np.fmax(self.noise, rules.spread_floor)
        added = np.where(np.isnan(added), 0.0, np.minimum(added, rules.added_max))
        sums = np.clip(self.sums + added, 0.0, 2 * rules.alarm)
        self.since = np.where((self.sums == 0) & (sums > 0), step, self.since)
        self.sums = sums

    def newest(self) -> Floats:
        """Return the median of the newest three steps."""
        return np.asarray(np.sort(self.ring[self._rows(3)], axis=0)[1])  # NaN comes last

    def replace(self, ring: Floats) -> None:
        """Take other ratios of the newest steps, as more is known; their noise is learned anew."""
        self.ring = ring
        self._jitter = Jitter(self._roster)
        for row in ring[self._rows(self._longest)]:
            self._jitter.observe(np.where(self._alone, np.nan, row))
        noise = [self._noise_of(row) for row in ring if not np.isnan(row).all()]
        self.noise = np.where(self._alone, self.noise, np.median(noise, axis=0))

    def middles(self, which: Mask | None = None) -> list[Middles]:
        """Return the middles of all windows, the shortest first; of some workers where told.

        How much they spread is known from the newest time that all were asked for.
        """
        found, unsteady = [], self._jitter.factors()
        for steps, deviations in self._rules.windows:
            rows = np.arange(self._steps - steps, self._steps) % self._longest
            known_min = self._rules.known_min(steps)
            if which is None or steps not in self._across:
                middles = middle_means(self.ring[rows], known_min)
                self._across[steps] = self._spread_of(steps, middles)
            else:
                columns = np.flatnonzero(which)
                middles = np.full(self._roster.size, np.nan)
                middles[columns] = middle_means(self.ring[np.ix_(rows, columns)], known_min)
            limit = self._limit(steps, deviations, unsteady)
            found.append(Middles(middles, limit, rows, deviations))
        return found

    def _spread_of(self, steps: int, middles: Floats) -> Floats:
        """Return how much the middles spread: by their noise, and by what sets workers apart.

        The noise of a role is known from many steps, what comes on top of it from as many middles
        as there are workers. So that is judged in units of the noise, and over all workers where a
        role is small; and what was seen before counts as well.
        """
        by_noise = np.fmax(self.noise, _NOISE_LEAST) / math.sqrt(steps)
        units = np.where(self._alone, np.nan, middles / by_noise)
        ratio = spread(units, self._roster)
        roles = self._roster.by_role
        small = roles.sizes[roles.of] < _FEW
        if small.any():
            known = units[~np.isnan(units)]
            pooled = MAD_TO_SIGMA * float(np.median(np.abs(known))) if len(known) else np.nan
            ratio = np.where(small, np.fmax(ratio, pooled), ratio)
        usual = self._usual_ratio.get(steps, ratio)
        usual = np.where(np.isnan(usual), ratio, usual + _RATIO_FOLLOW * (ratio - usual))
        self._usual_ratio[steps] = usual
        return np.asarray(np.fmax(ratio, usual) * by_noise)

    def _limit(self, steps: int, deviations: float, unsteady: Floats) -> Floats:
        """Return what a middle must exceed. Of many, the largest lies further out."""
        rules = self._rules
        many = math.sqrt(math.log(max(self._roster.size, _FEW)) / math.log(_FEW))
        noise = np.fmax(self._across[steps], self.noise / math.sqrt(steps))
        # What is usual of a worker without peers is known from ten steps, and less well than from
        # ten draws: neighbouring steps are alike.
        noise = noise * np.where(self._alone, 1 + steps / USUAL_STEPS, unsteady)
        least = max(rules.ratio, rules.floor_deviations * rules.spread_floor)
        return np.asarray(np.fmax(least, deviations * many * noise))

    def judged(self, windows: Sequence[Middles], places: SlowPlaces) -> Mask:
        """Return who is slow by any window, beside what its places explain."""
        slow = np.zeros(self._roster.size, dtype=bool)
        for one in windows:
            effect = places.effect(one.of_window)
            # NaN compares as false: who told too little is neither judged slow nor cleared.
            beyond = (one.of_window - effect > one.limit) & self.nominees
            which = np.flatnonzero(beyond & ~slow)
            if len(which):
                values = self.ring[np.ix_(one.rows, which)] - effect[which]
                own = (one.of_window - effect)[which]
                noise = self.noise[which]
                lasts = self._lasts(values, own, one.limit[which], noise)
                surely = own > one.deviations * window_noise(values) / math.sqrt(len(values))
                surely &= ~self._by_chance(values, own)
                slow[which] = lasts & surely & ~self.stalls(which, own, effect)
        return slow

    def _by_chance(self, values: Floats, middles: Floats) -> Mask:
        """Return which columns have their long steps by chance, as others have such steps as well.

        Where noise is as usual, no other has steps as long, and none is by chance.
        """
        others = np.flatnonzero(~self.nominees & ~self._alone)
        seen = self.ring[:, others[:: 1 + len(others) // _SAMPLE]]
        seen = np.sort(seen[~np.isnan(seen)])
        if not len(seen):
            return np.zeros(len(middles), dtype=bool)
        core = MAD_TO_SIGMA * float(np.median(np.abs(seen - np.median(seen))))
        long = self._rules.sure_step_share * middles
        usual = 1 - np.searchsorted(seen, long) / len(seen)
        count = np.count_nonzero(values > long, axis=0)
        chance = [
            at_least(one, len(values), share)
            for one, share in zip(count.tolist(), usual.tolist(), strict=True)
        ]
        beyond = long > self._rules.step_deviations_max * max(core, self._rules.spread_floor)
        return np.asarray(beyond & (np.array(chance) > _CHANCE_MAX))

    def stalls(self, which: Indices, middles: Floats, effect: Floats) -> Mask:
        """Return who of some is slow now and then only, where noise is no reason for it."""
        values = self.ring[np.ix_(self._rows(self._longest), which)] - effect[which]
        noise = np.fmax(self.noise[which], self._rules.spread_floor)
        sure = middles > self._rules.sure_deviations * noise
        return np.asarray(sure & stalling(values, self._rules.step_share * middles))

    def returning(self, slow: Mask, effect: Floats) -> Mask:
        """Return which of the slow workers were fast between, within the longest window."""
        found, which = np.zeros_like(slow), np.flatnonzero(slow)
        if len(which):
            values = self.ring[np.ix_(self._rows(self._longest), which)]
            values = values - effect[which]
            noise = np.fmax(self.noise[which], self._rules.spread_floor)
            fast_to = self._rules.step_deviations_max * noise
            found[which] = returning(values, fast_to, self._rules.sure_deviations * noise)
        return found

    def exceeded(self, which: Indices) -> Floats:
        """Return what the ratios of some exceeded in most steps of the shortest window."""
        steps = self._rules.windows[0][0]
        ordered = np.sort(self.ring[np.ix_(self._rows(steps), which)], axis=0)  # NaN comes last
        place = len(ordered) - self._rules.known_min(len(ordered))
        return np.asarray(ordered[place])

    def _rows(self, count: int) -> Indices:
        """Return where the newest steps are in the ring, the oldest first."""
        count = min(count, self._steps, self._longest)
        return np.arange(self._steps - count, self._steps) % self._longest

    def lasting(self, places: SlowPlaces, window: Middles, before: SlowPlaces) -> SlowPlaces:
        """Return the places of which most steps are slow, or were before: not one that pauses."""
        found: list[SlowPlace] = []
        held = {(one.kind, one.place) for one in before.found}
        rest = self.ring[self._rows(self._longest)] if places.found else self.ring[:0]
        for one in places.found:
            steps = row_medians(rest[:, one.members])[:, None]
            # A place whose steps jump about as much, such as one whose loader stalls, only pauses.
            length, deviations = self._rules.windows[0]
            limit = np.fmax(self._rules.ratio, deviations * jumps(steps) / math.sqrt(length))
            noise = row_medians(self.noise[None, one.members])
            newest = steps[-len(window.rows) :]
            lasts = self._lasts(newest, np.array([one.ratio]), limit, noise)[0]
            if lasts or (one.kind, one.place) in held:
                found.append(one)
            rest[:, one.members] -= one.ratio
        return SlowPlaces(tuple(found))

    def _lasts(self, values: Floats, middles: Floats, limit: Floats, noise: Floats) -> Mask:
        """Return which columns are slower in most steps, and beyond the limit without pauses."""
        rules = self._rules
        known_min = rules.known_min(len(values))
        most_off = rules.step_deviations_max * np.fmax(noise, rules.spread_floor)
        # Below the median, which is a pause where half of the steps are.
        most = np.nanquantile(values, 0.4, axis=0) + most_off
        without = middle_means(np.minimum(values, most), known_min)
        least = np.fmax(
            rules.step_share * middles,
            np.minimum(without - most_off, rules.sure_step_share * without),
        )
        slower = np.count_nonzero(values > least, axis=0) >= known_min
        return np.asarray(slower & (without > limit))
