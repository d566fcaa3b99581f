"""Analysis of a recording: SlowWatch over its steps, and what was seen as a verdict."""

import numpy as np

from everstep_controller.slow.episodes import Episodes, PlaceEpisode, WorkerEpisode
from everstep_controller.slow.explanation import explained
from everstep_controller.slow.losses import Losses, shares
from everstep_controller.slow.peers import Floats, Roster
from everstep_controller.slow.places import SlowPlace
from everstep_controller.slow.track import Rules
from everstep_controller.slow.verdict import SlowVerdict
from everstep_controller.slow.watch import SlowWatch, StepJudgement

# Ours: who turns out within so many steps to be slow now and then only has never been slow.
_SOON = 40


class SlowAnalysis:
    """Follows the steps of a job; tells at any time what was seen. Its state is bounded."""

    def __init__(self, roster: Roster, rules: Rules | None = None) -> None:
        self._roster = roster
        self._watch = SlowWatch(roster, rules)
        self._seen = Episodes(roster, Losses(roster))
        self._open: dict[int, WorkerEpisode] = {}
        # How far above their peers those are in most steps that are nominated, as logarithms.
        self._rising = np.zeros(roster.size)
        self._open_places: dict[tuple[str, int], PlaceEpisode] = {}

    def observe(self, step: int, seconds: Floats) -> StepJudgement:
        """Take one step, by worker; NaN: that worker told nothing of it."""
        judged = self._watch.observe(step, seconds)
        self._seen.newest = step
        self._follow_workers(step, judged)
        self._follow_places(step, judged)
        self._count(step, seconds, judged)
        self._follow_nominees(judged)
        return judged

    def verdict(self) -> SlowVerdict:
        """Return what has been seen so far."""
        return explained(self._seen)

    def _follow_workers(self, step: int, judged: StepJudgement) -> None:
        for worker in np.flatnonzero(judged.different).tolist():
            if worker not in self._seen.different:
                self._seen.add_different(worker)
                self._seen.losses.forget_pauses(worker)
                self._open.pop(worker, None)
        for worker in np.flatnonzero(judged.stalling).tolist():
            episode = self._open.get(worker)
            if episode is not None and episode.seen <= _SOON:
                self._seen.take_back(self._open.pop(worker))
        self._seen.changed.update(np.flatnonzero(judged.changed).tolist())
        for worker in [one for one in self._open if not judged.slow[one]]:
            self._open.pop(worker).until = step
        for worker in np.flatnonzero(judged.slow).tolist():
            if worker not in self._open:
                episode = WorkerEpisode(int(self._watch.since[worker]), step, worker=worker)
                episode.own_past = bool(self._watch.alone[worker])
                episode.at = self._seen.losses.steps
                self._open[worker] = episode
                self._seen.add(episode)
                self._seen.losses.forget_pauses(worker)
            self._open[worker].measure(float(judged.middles[worker]))

    def _follow_nominees(self, judged: StepJudgement) -> None:
        seen, nominated = self._seen, judged.nominated
        over = (self._rising > 0) & ~nominated & ~judged.slow
        seen.rose = np.where(over, self._rising, seen.rose)
        seen.rose_at = np.where(over, seen.losses.steps, seen.rose_at)
        self._rising = np.where(nominated, np.fmax(self._rising, judged.exceeded), 0.0)
        seen.nominated = np.flatnonzero(nominated).tolist()

    def _follow_places(self, step: int, judged: StepJudgement) -> None:
        found: dict[tuple[str, int], SlowPlace] = {
            (one.kind, one.place): one for one in judged.places.found
        }
        for key in [one for one in self._open_places if one not in found]:
            self._open_places.pop(key).until = step
        for key, place in found.items():
            if key not in self._open_places:
                since = int(np.median(self._watch.since[place.members]))
                episode = PlaceEpisode(min(since, step), step, place=place)
                self._open_places[key] = episode
                self._seen.add_place(episode)
                for worker in place.members.tolist():
                    self._seen.losses.forget_pauses(worker)
            self._open_places[key].measure(place.ratio)

    def _count(self, step: int, seconds: Floats, judged: StepJudgement) -> None:
        # Workers that do different work are reported as that, not as pauses or uneven data.
        slow = judged.slow | judged.different
        for episode in self._open_places.values():
            slow[episode.place.members] = True
        lost = self._seen.losses.add(step, seconds, judged.expected_s, judged.noise, slow)
        which = np.flatnonzero(judged.slow)
        if len(which):
            own = shares(seconds, judged.expected_s, which)
            for worker, own_s in zip(which.tolist(), own.tolist(), strict=True):
                self._open[worker].lost_s += lost
                self._open[worker].own_s += own_s
