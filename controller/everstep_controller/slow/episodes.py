"""Episodes of slow workers and places, and the sums of what a job lost."""

from dataclasses import dataclass, field

import numpy as np

from everstep_controller.slow.losses import Losses
from everstep_controller.slow.peers import Floats, Indices, Roster
from everstep_controller.slow.places import SlowPlace

# The first episodes are kept: what came first explains what follows.
_EPISODES_MAX = 256
_BEGINNING = 5


@dataclass(slots=True)
class Episode:
    """Time during which something was slow."""

    since: int
    judged: int
    # How many steps were seen in it: a table may have every tenth only.
    seen: int = 0
    # The step by which it was as fast as its peers again; None: it was slow to the end.
    until: int | None = None
    _ratios: float = 0.0
    _steps: int = 0

    def measure(self, ratio: float) -> None:
        """Take the newest middle of ten steps, as a logarithm."""
        self.seen += 1
        if not np.isnan(ratio):
            # The first ones hold steps from before it became slow.
            kept = self._ratios if self._steps >= _BEGINNING else self._steps * ratio
            self._ratios = kept + ratio
            self._steps += 1

    @property
    def factor(self) -> float:
        """Return how many times longer it took than its peers."""
        return float(np.exp(self._ratios / self._steps)) if self._steps else 1.0


@dataclass(slots=True)
class WorkerEpisode(Episode):
    """Time during which a worker was slow."""

    worker: int = 0
    own_past: bool = False
    # How many steps were seen before it was judged.
    at: int = 0
    # What the job lost meanwhile, and what of it to this worker, in seconds.
    lost_s: float = 0.0
    own_s: float = 0.0

    @property
    def share(self) -> float:
        """Return what part of the loss this worker explains."""
        return min(self.own_s / self.lost_s, 1.0) if self.lost_s > 0 else 0.0


@dataclass(slots=True, kw_only=True)
class PlaceEpisode(Episode):
    """Time during which the workers of a place were slow together."""

    place: SlowPlace


@dataclass(slots=True)
class Episodes:
    """All that a verdict is made of."""

    roster: Roster
    losses: Losses
    workers: list[WorkerEpisode] = field(default_factory=list)
    places: list[PlaceEpisode] = field(default_factory=list)
    # Workers that do different work than others of their role.
    different: set[int] = field(default_factory=set)
    # Those of them that did not in the first steps.
    changed: set[int] = field(default_factory=set)
    nominated: list[int] = field(default_factory=list)
    # By worker, how far it was above its peers in most of ten steps when it last was nominated and
    # then not found slow, as a logarithm; and how many steps were seen then.
    rose: Floats = field(init=False)
    rose_at: Indices = field(init=False)
    # The newest step.
    newest: int = 0

    def __post_init__(self) -> None:
        """Begin with nobody that was nominated."""
        self.rose = np.zeros(self.roster.size)
        self.rose_at = np.zeros(self.roster.size, dtype=np.int64)

    def add(self, episode: WorkerEpisode) -> None:
        """Keep the beginning of a worker's episode."""
        if len(self.workers) < _EPISODES_MAX:
            self.workers.append(episode)

    def take_back(self, episode: WorkerEpisode) -> None:
        """Take back an episode: the worker was not slow."""
        self.workers = [one for one in self.workers if one is not episode]

    def add_different(self, worker: int) -> None:
        """Take back what was said of a worker: it does different work."""
        self.different.add(worker)
        self.workers = [one for one in self.workers if one.worker != worker]

    def add_place(self, episode: PlaceEpisode) -> None:
        """Keep the beginning of a place's episode."""
        if len(self.places) < _EPISODES_MAX:
            self.places.append(episode)
