"""SlowWatch: nominates and judges slow workers, one step of a job after the other.

Its state is bounded: twenty steps and a few numbers for each worker, however long the job runs.
"""

import copy
from dataclasses import dataclass

import numpy as np

from everstep_controller.slow.peers import (
    MAD_TO_SIGMA,
    PEERS_MIN,
    Floats,
    Groups,
    Indices,
    Mask,
    Roster,
    middle_means,
)
from everstep_controller.slow.places import NO_PLACES, SlowPlaces, slow_places
from everstep_controller.slow.role_mismatch import RoleMismatch
from everstep_controller.slow.shared_data import WORKERS_MAX, SharedData
from everstep_controller.slow.track import Rules, Track

# How fast what is usual follows what is seen: 1/200 a step, by at most 2 % at once. Slower than
# what is judged, faster than a drift of 2 % a day.
_FOLLOW, _FOLLOW_MAX = 1 / 200, 0.02
# Of a normal distribution the mean absolute deviation is 0.8 standard deviations.
_MEAN_DEVIATION = 0.8
# Of more workers than share data, all are looked at once in so many steps, else only suspects.
_ALL_EVERY = 4


@dataclass(frozen=True, slots=True)
class StepJudgement:
    """What is known of all workers after a step."""

    # Seconds relative to peers, as logarithms: in this step, and in the middle of ten.
    ratios: Floats
    middles: Floats
    # Of those that are nominated, what their ratios exceeded in most of ten steps.
    exceeded: Floats
    # What each worker would take as its peers do, in seconds.
    expected_s: Floats
    # Noise of one step's ratio: one standard deviation.
    noise: Floats
    nominated: Mask
    slow: Mask
    # Were taken to be slow, and turned out to be slow now and then only.
    stalling: Mask
    # Seem slow with so many others of their role that they must do different work.
    different: Mask
    # Those of them that did not in the first steps: their work changed.
    changed: Mask
    places: SlowPlaces


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
        self._whole = Track(roster, self.alone, self._rules)
        # The same without what comes from the data; the whole, while that is not known.
        self._own = self._whole
        self._data = SharedData(roster)
        self._slow = np.zeros(size, dtype=bool)
        # Were slow, and turned out in this step to be slow now and then only.
        self._stalling = np.zeros(size, dtype=bool)
        # Places that explain their members, and those that are told: these are slow in most steps.
        self._places = NO_PLACES
        self._told_places = NO_PLACES
        most, apart = self._rules.share_of_role_max, self._rules.apart
        self._different = RoleMismatch(roster, self.alone, most, apart)
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
        self._stalling = np.zeros_like(self._slow)
        # In most steps of a calm job nothing else needs to be known.
        if nominees.any() or self._slow.any() or self._places.found:
            middles = self._judge_all()
        seems = nominees & (middles > self._rules.ratio)
        exceeded = np.full(len(ratios), np.nan)
        if seems.any():
            exceeded[seems] = self._own.exceeded(np.flatnonzero(seems))
        return StepJudgement(
            ratios=ratios,
            middles=middles,
            exceeded=exceeded,
            expected_s=expected_s,
            noise=self._whole.noise,
            nominated=seems & ~self._slow & (self._different.ratios == 0),
            slow=self._slow,
            stalling=self._stalling,
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
        slow = (still | judged) & ~self._stalling
        self._slow = self._different.left_out(slow, middles, present)
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
        effect = self._places.effect(shortest.of_window)
        middles = shortest.of_window - effect
        self._stalling = self._whole.returning(self._slow, effect)
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
