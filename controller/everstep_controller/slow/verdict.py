"""SlowVerdict on a job: which workers make the others wait, and what only looks as if they did."""

from dataclasses import dataclass
from enum import Enum


class Advice(Enum):
    """What is best done about a slow worker. Nothing is done by itself on seconds alone."""

    # It explains most of what the job loses: another node in its place is worth it.
    SWAP = "swap"
    # It is slow, and the job would be about as slow without it.
    NOTIFY = "notify"


class ImbalanceKind(Enum):
    """Why workers that are healthy wait for one another."""

    # Each step another worker is the last one: sequences of different lengths.
    DATA = "data"
    # One role has more to compute than the others: stages of a pipeline.
    STAGE = "stage"
    # Many workers are slow for a short time, one after the other: experts that are asked for more.
    MOVING = "moving"
    # Workers with one role do different work, so that they cannot be compared.
    MIXED_ROLE = "mixed_role"
    # Some of every role are slow alike from the first step on: a replica with longer sequences.
    REPLICA = "replica"
    # Half of a role, or one of two workers, is slower than the others: who is usual is not known.
    TWO_SPEEDS = "two_speeds"


class PauseKind(Enum):
    """What makes single steps long."""

    # The first steps: compiling, allocating, filling caches.
    FIRST_STEPS = "first_steps"
    # All workers at once, at equal distances: evaluation, or a save.
    PERIODIC = "periodic"
    # All workers at once: storage, network, or a step that is larger.
    COMMON = "common"
    # All workers, for longer than a pause: longer sequences, or what all share.
    LASTING = "lasting"
    # The same workers at once, again and again: the loader or the storage of their node.
    TOGETHER = "together"
    # Single workers, each now and then: garbage collection.
    SCATTERED = "scattered"
    # One worker again and again, but not always: its loader, or its storage.
    ONE_WORKER = "one_worker"


@dataclass(frozen=True, slots=True)
class SlowWorker:
    """Worker that is or was slower than its peers."""

    worker: str
    role: str
    # Its seconds, relative to what they would be as its peers' are.
    factor: float
    since_step: int
    # The step by which it was judged, and the last one before it was as fast as its peers again;
    # None: it still is slow.
    judged_step: int
    until_step: int | None
    # Of what the job lost to the slowest of each step meanwhile: what it would gain without it.
    share: float
    advice: Advice
    # Whether it was compared with fewer than three peers, that is, with its own past.
    own_past: bool
    sentence: str


@dataclass(frozen=True, slots=True)
class SlowPlaceFound:
    """Node, leaf, rack or power domain whose workers are slow together."""

    kind: str
    name: str
    workers: int
    factor: float
    since_step: int
    until_step: int | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Imbalance:
    """Waiting that nobody can be blamed for. ``ratio`` is how much longer it makes the steps."""

    kind: ImbalanceKind
    ratio: float
    sentence: str

    @property
    def is_open(self) -> bool:
        """Whether the seconds leave open if it is more work, or something is slow."""
        return self.kind in _OPEN_KINDS


_OPEN_KINDS = (ImbalanceKind.MIXED_ROLE, ImbalanceKind.REPLICA, ImbalanceKind.TWO_SPEEDS)


@dataclass(frozen=True, slots=True)
class Pause:
    """Single long steps, which are no slowness."""

    kind: PauseKind
    steps: int
    seconds: float
    worker: str
    sentence: str


@dataclass(frozen=True, slots=True)
class SlowVerdict:
    """Verdict on slowness: the workers that make the others of a job wait."""

    sentence: str
    slow: tuple[SlowWorker, ...]
    places: tuple[SlowPlaceFound, ...]
    # Seem slow at the end of the table; too few steps to tell.
    watched: tuple[str, ...]
    imbalances: tuple[Imbalance, ...]
    pauses: tuple[Pause, ...]
    # What could not be judged, and what follows from it.
    blind: tuple[str, ...]
    workers: int
    roles: int
    steps: int
    # Sum over the steps of the slowest worker, and what it would be at the peers' pace.
    seconds: float
    ideal_seconds: float

    @property
    def lost_ratio(self) -> float:
        """Return what part of the time goes to the slowest worker of each step."""
        return 1 - self.ideal_seconds / self.seconds if self.seconds > 0 else 0.0
