"""SlowWatch: nominates and judges slow workers, one step of a job after the other.

Its state is bounded: twenty steps and a few numbers for each worker, however long the job runs.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from everstep_controller.slow.different_work import DifferentWork
from everstep_controller.slow.losses import stalling
from everstep_controller.slow.peers import (
    MAD_TO_SIGMA,
    PEERS_MIN,
    Floats,
    Groups,
    Indices,
    Mask,
    Roster,
    middle_means,
    row_medians,
    spread,
)
from everstep_controller.slow.places import NO_PLACES, SlowPlace, SlowPlaces, slow_places
from everstep_controller.slow.shared_data import WORKERS_MAX, SharedData

# How fast what is usual follows what is seen: 1/200 a step, by at most 2 % at once. Slower than
# what is judged, faster than a drift of 2 % a day.
_FOLLOW, _FOLLOW_MAX = 1 / 200, 0.02
_NOISE_FOLLOW, _NOISE_EVERY = 0.1, 4
_NOISE_LEAST, _RATIO_FOLLOW = 1e-6, 0.05
# Of a normal distribution the mean absolute deviation is 0.8 standard deviations.
_MEAN_DEVIATION = 0.8
# Thresholds are for so many workers.
_FEW = 64
_USUAL_STEPS = 10
# Of more workers than share data, all are looked at once in so many steps, else only suspects.
_ALL_EVERY = 4


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
class StepJudgement:
    """What is known of all workers after a step."""

    # Seconds relative to peers, as logarithms: in this step, and in the middle of ten.
    ratios: Floats
    middles: Floats
    # What each worker would take as its peers do, in seconds.
    expected_s: Floats
    # Noise of one step's ratio: one standard deviation.
    noise: Floats
    nominated: Mask
    slow: Mask
    # Seem slow with so many others of their role that they must do different work.
    different: Mask
    # Those of them that did not in the first steps: their work changed.
    changed: Mask
    places: SlowPlaces


@dataclass(frozen=True, slots=True)
class _Middles:
    """Middles of a window that ends with this step, and what they must exceed to be slow."""

    of_window: Floats
    limit: Floats
    rows: Indices


class _Track:
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
        self._nominate(step, ratios)
        self._steps += 1

    def _learn_noise(self, ratios: Floats, own_noise: Floats) -> None:
        noise = spread(np.where(self._alone, np.nan, ratios), self._roster)
        noise = np.where(self._alone, own_noise, noise)
        known = self.noise + _NOISE_FOLLOW * (noise - self.noise)
        self.noise = np.where(np.isnan(known), noise, known)

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
        rows = self.ring[np.arange(self._steps - 3, self._steps) % self._longest]
        return np.asarray(np.sort(rows, axis=0)[1])  # NaN comes last

    def replace(self, ring: Floats) -> None:
        """Take other ratios of the newest steps, as more is known; their noise is learned anew."""
        self.ring = ring
        noise = [
            spread(np.where(self._alone, np.nan, row), self._roster)
            for row in ring
            if not np.isnan(row).all()
        ]
        self.noise = np.where(self._alone, self.noise, np.median(noise, axis=0))

    def middles(self, which: Mask | None = None) -> list[_Middles]:
        """Return the middles of all windows, the shortest first; of some workers where told.

        How much they spread is known from the newest time that all were asked for.
        """
        found = []
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
            found.append(_Middles(middles, self._limit(steps, deviations), rows))
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

    def _limit(self, steps: int, deviations: float) -> Floats:
        """Return what a middle must exceed. Of many, the largest lies further out."""
        rules = self._rules
        many = math.sqrt(math.log(max(self._roster.size, _FEW)) / math.log(_FEW))
        noise = np.fmax(self._across[steps], self.noise / math.sqrt(steps))
        # What is usual of a worker without peers is known from ten steps, and less well than from
        # ten draws: neighbouring steps are alike.
        noise = np.where(self._alone, noise * (1 + steps / _USUAL_STEPS), noise)
        least = max(rules.ratio, rules.floor_deviations * rules.spread_floor)
        return np.asarray(np.fmax(least, deviations * many * noise))

    def judged(self, windows: Sequence[_Middles], places: SlowPlaces) -> Mask:
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
                lasts = self._lasts(values, own, one.limit[which], self.noise[which])
                slow[which] = lasts & ~self.stalls(which, own, effect)
        return slow

    def stalls(self, which: Indices, middles: Floats, effect: Floats) -> Mask:
        """Return who of some is slow now and then only, where noise is no reason for it."""
        count = min(self._steps, self._longest)
        rows = np.arange(self._steps - count, self._steps) % self._longest
        values = self.ring[np.ix_(rows, which)] - effect[which]
        noise = np.fmax(self.noise[which], self._rules.spread_floor)
        sure = middles > self._rules.sure_deviations * noise
        return np.asarray(sure & stalling(values, self._rules.step_share * middles))

    def lasting(self, places: SlowPlaces, window: _Middles, before: SlowPlaces) -> SlowPlaces:
        """Return the places of which most steps are slow, or were before: not one that pauses."""
        found: list[SlowPlace] = []
        held = {(one.kind, one.place) for one in before.found}
        rest = self.ring[window.rows].copy() if places.found else self.ring[:0]
        for one in places.found:
            steps = row_medians(rest[:, one.members])[:, None]
            limit = np.array([self._rules.ratio])
            noise = row_medians(self.noise[None, one.members])
            lasts = self._lasts(steps, np.array([one.ratio]), limit, noise)[0]
            if lasts or (one.kind, one.place) in held:
                found.append(one)
            rest[:, one.members] -= one.ratio
        return SlowPlaces(tuple(found))

    def _lasts(self, values: Floats, middles: Floats, limit: Floats, noise: Floats) -> Mask:
        """Return which columns are slower in most steps, and beyond the limit without pauses."""
        rules = self._rules
        known_min = rules.known_min(len(values))
        slower = np.count_nonzero(values > rules.step_share * middles, axis=0) >= known_min
        spread_of_step = np.fmax(noise, rules.spread_floor)
        # Below the median, which is a pause where half of the steps are.
        most = np.nanquantile(values, 0.4, axis=0) + rules.step_deviations_max * spread_of_step
        return np.asarray(slower & (middle_means(np.minimum(values, most), known_min) > limit))


class SlowWatch:
    """Watch over the workers of one generation of a job."""

    def __init__(self, roster: Roster, rules: Rules | None = None) -> None:
        self._roster, self._rules = roster, rules or Rules()
        size, roles = roster.size, roster.by_role
        # Workers with fewer than three peers are compared with their own past.
        self.alone: Mask = roles.sizes[roles.of] <= PEERS_MIN
        self._all = Groups(np.zeros(size, dtype=np.int64), 1)
        self._first_values = np.full((self._rules.windows[0][0], size), np.nan)
        self._usual = np.full(size, np.nan)
        self._own_noise = np.full(size, np.nan)
        self._whole = _Track(roster, self.alone, self._rules)
        # The same without what comes from the data; the whole, while that is not known.
        self._own = self._whole
        self._data = SharedData(roster)
        self._slow = np.zeros(size, dtype=bool)
        # Places that explain their members, and those that are told: these are slow in most steps.
        self._places = NO_PLACES
        self._told_places = NO_PLACES
        most, apart = self._rules.share_of_role_max, self._rules.apart
        self._different = DifferentWork(roster, self.alone, most, apart)
        self._steps = 0

    @property
    def since(self) -> Indices:
        """Return since which step each worker has seemed slow."""
        return np.where(self._own.sums > 0, self._own.since, self._whole.since)

    def observe(self, step: int, seconds: Floats) -> StepJudgement:
        """Take the seconds of a step by worker, NaN where one told nothing; judge all workers."""
        values = np.log(seconds)
        expected = self._roster.by_role.medians(values).of_peers
        if self.alone.any():
            expected = np.where(self.alone, self._from_own_past(values), expected)
        ratios = values - expected
        self._whole.add(step, ratios, self._own_noise)
        self._take_out_data(step, ratios)
        if self.alone.any():
            self._learn_usual(values, ratios)
        self._steps += 1
        if self._steps == len(self._first_values):
            known_min = self._rules.known_min(self._steps)
            tracks = (self._whole, self._own)
            first = [middle_means(one.ring[: self._steps], known_min) for one in tracks]
            self._different.begin(np.fmax(*first))
        return self._judge(ratios, np.exp(expected))

    def _take_out_data(self, step: int, ratios: Floats) -> None:
        known = self._data.observe(ratios, self._whole.noise)
        if self._own is not self._whole:
            self._own.add(step, self._data.without(ratios), self._own_noise)
        if known:
            if self._own is self._whole:
                self._own = copy.deepcopy(self._whole)
            self._own.replace(self._data.without(self._whole.ring))

    def _from_own_past(self, values: Floats) -> Floats:
        """Return what is usual of each; more, where the others have become slower as well."""
        common = self._all.medians(values - self._usual).of_peers
        return np.asarray(self._usual + np.fmax(common, 0.0))

    def _learn_usual(self, values: Floats, ratios: Floats) -> None:
        """Follow slowly what is usual of those with few peers, while they are not suspected."""
        if self._steps < len(self._first_values):
            self._first_values[self._steps] = values
            if self._steps + 1 == len(self._first_values):
                self._begin_usual()
            return
        calm = self.alone & (self._whole.sums == 0) & ~np.isnan(ratios)
        change = np.clip(values - self._usual, -_FOLLOW_MAX, _FOLLOW_MAX)
        self._usual = np.where(calm, self._usual + _FOLLOW * change, self._usual)
        noise = np.abs(change) / _MEAN_DEVIATION - self._own_noise
        self._own_noise = np.where(calm, self._own_noise + _FOLLOW * noise, self._own_noise)

    def _begin_usual(self) -> None:
        known_min = self._rules.known_min(len(self._first_values))
        self._usual = middle_means(self._first_values, known_min)
        deviations = np.abs(self._first_values - self._usual)
        noise = MAD_TO_SIGMA * middle_means(deviations, known_min)
        # Ten steps of one worker say little of its noise.
        known = noise[self.alone & ~np.isnan(noise)]
        self._own_noise = np.fmax(noise, float(np.median(known)) if len(known) else np.nan)

    def _judge(self, ratios: Floats, expected_s: Floats) -> StepJudgement:
        nominees = self._whole.nominees | self._own.nominees
        middles = np.full(len(ratios), np.nan)
        # In most steps of a calm job nothing else needs to be known.
        if nominees.any() or self._slow.any() or self._places.found:
            middles = self._judge_all()
        seems = nominees & (middles > self._rules.ratio)
        return StepJudgement(
            ratios=ratios,
            middles=middles,
            expected_s=expected_s,
            noise=self._whole.noise,
            nominated=seems & ~self._slow & (self._different.ratios == 0),
            slow=self._slow,
            different=self._different.ratios > 0,
            changed=self._different.later,
            places=self._told_places,
        )

    def _judge_all(self) -> Floats:
        """Judge all workers; return the middles of ten steps beside what places explain."""
        some, rules = self._whole.nominees | self._own.nominees | self._slow, self._rules
        for place in self._places.found:
            some[place.members] = True
        few = len(some) > WORKERS_MAX and self._steps % _ALL_EVERY > 0
        middles, judged = self._judged(some if few else None)
        if few and (judged & ~self._slow & (self._different.ratios == 0)).any():
            middles, judged = self._judged(None)
        still = self._slow & ~(middles < rules.cleared_ratio) & ~self._gone()
        present = some & ~(self._own.newest() < rules.step_share * middles)
        self._slow = self._different.left_out(still | judged, middles, present)
        return middles

    def _gone(self) -> Mask:
        """Return which slow workers told nothing in any step of the longest window."""
        gone = np.zeros_like(self._slow)
        which = np.flatnonzero(self._slow)
        gone[which] = np.isnan(self._whole.ring[:, which]).all(axis=0)
        return gone

    def _judged(self, some: Mask | None) -> tuple[Floats, Mask]:
        """Judge those workers, or all and the places; return their middles of ten, and the slow."""
        rules, windows = self._rules, self._whole.middles(some)
        shortest, longest = windows[0], windows[-1].of_window
        found = self._places
        if some is None:
            found = slow_places(shortest.of_window, shortest.limit, self._roster, rules.ratio)
        self._places = found.kept(self._places, longest, rules.cleared_ratio)
        self._told_places = self._whole.lasting(self._places, shortest, self._told_places)
        middles = shortest.of_window - self._places.effect(shortest.of_window)
        judged = self._whole.judged(windows, self._places)
        if self._own is not self._whole:
            own = self._own.middles(some)
            left = own[0].of_window - self._places.effect(own[0].of_window)
            # What those have in common who work on the same data is no slowness of any of them.
            # Of the others it is not known what is data, and how little is usual without it.
            known = self._data.has_partner
            judged &= ~(known & (left < rules.ratio))
            beyond = self._own.judged(own, self._places) & known
            judged |= beyond & ~(middles < rules.cleared_ratio)
            middles = np.fmax(middles, left)
        return middles, judged
