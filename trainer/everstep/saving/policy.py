"""Snapshot policy of a training script, and the deadlines of its waits for the agent."""

from dataclasses import dataclass
from typing import Literal

from everstep.rank.agent_link import SILENCE_S

OnFull = Literal["block", "skip"]
Hasher = Literal["agent", "trainer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Policy of saving: how steps are saved, and what happens when one cannot be."""

    # Copy in the background, while the next step computes.
    overlap: bool = False
    # With no slot free, wait for one (`wait_s` seconds at most) or leave the step out at once.
    on_full: OnFull = "block"
    wait_s: float | None = None
    # The taker of the hashes: "trainer" covers the copy too, before it, at 12 GB/s per thread.
    hash: Hasher = "agent"
    # Raise SnapshotError for a step that is not saved, instead of counting it.
    raises: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for what is none of the choices."""
        if self.on_full not in ("block", "skip"):
            raise ValueError(f"on_full: expected 'block' or 'skip', got {self.on_full!r}")
        if self.hash not in ("agent", "trainer"):
            raise ValueError(f"hash: expected 'agent' or 'trainer', got {self.hash!r}")
        if self.wait_s is not None and not _is_duration(self.wait_s):
            raise ValueError(f"wait_s: expected seconds from 0 on, got {self.wait_s!r}")

    @property
    def begin_wait_s(self) -> float | None:
        """Return how long the agent may wait for a free slot; None leaves it to the agent."""
        return 0.0 if self.on_full == "skip" else self.wait_s


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < float("inf")


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Longest times that training waits for an agent at work, in seconds.

    One that stands still is waited for at most `SILENCE_S`, but for a state to restore.
    """

    # The agent answers a Begin after 5 s at the latest, with Skip; the rest is for a busy node.
    begin_s: float = 10.0
    commit_s: float = 10.0
    # Slots are pre-faulted at 2.6 GB/s; a node with all its ranks at it may be ten times slower.
    reserve_s: float = 30.0
    reserve_bytes_per_s: float = 250e6
    # Shards may come from peers: 100 GB at 1 GB/s, and room for sources that turn out bad.
    restore_s: float = 600.0
    # With nothing to restore, training can as well begin without the agent.
    fresh_s: float = SILENCE_S
    # The last snapshot is waited for: as long as Begin and Commit may take.
    exit_s: float = 20.0

    def to_begin_s(self, policy: Policy) -> float:
        """Return how long a Begin may take, the wait for a free slot included."""
        return self.begin_s + (policy.wait_s or 0.0)

    def to_reserve_s(self, size_bytes: int) -> float:
        """Return how long slots of this size may take."""
        return self.reserve_s + size_bytes / self.reserve_bytes_per_s
