"""Capacity for snapshots: what is left for one user, what fits, and what a job will need. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from everstep_agent.vault.memory.pages import HUGE_PAGE_BYTES, round_up

# The keys that limit what one user may have.
PER_USER_RATIO = "jobs.memory_per_user_max_ratio"
PER_USER_BYTES = "jobs.memory_per_user_bytes_max"
# Fewest slots of a rank: with fewer, a copy would be overwritten while no other is recoverable.
SLOTS_MIN = 2


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Limits that an operator sets, in bytes; 0 is no limit."""

    reserve_bytes: int = 0
    total_bytes: int = 0
    per_user_bytes: int = 0
    # Of all that snapshots of all users may take; 1: no limit. See `user_capacity_left`.
    per_user_ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes that snapshots take already: those of all users, and of the one who asks."""

    total_bytes: int
    user_bytes: int

    def plus(self, other: "MemoryUse") -> "MemoryUse":
        """Return what both take."""
        return MemoryUse(self.total_bytes + other.total_bytes, self.user_bytes + other.user_bytes)

    def minus(self, other: "MemoryUse") -> "MemoryUse":
        """Return what is taken without the other."""
        return MemoryUse(self.total_bytes - other.total_bytes, self.user_bytes - other.user_bytes)


NO_USE = MemoryUse(0, 0)


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """Free memory of the node: ordinary memory, and explicit huge pages of its pool."""

    ordinary_bytes: int
    pool_bytes: int = 0

    def without(self, size_bytes: int) -> "NodeCapacity":
        """Return what is left when so much is taken, from the pool first."""
        pooled = min(self.pool_bytes, size_bytes)
        return NodeCapacity(self.ordinary_bytes - (size_bytes - pooled), self.pool_bytes - pooled)


@dataclass(frozen=True, slots=True)
class Capacity:
    """Bytes that are left for one user, and whose words say so."""

    size_bytes: int
    limited_by: str
    # What the node has free, of ordinary memory and of huge pages: a slot is of one or the other.
    node: NodeCapacity
    # The holders of the rest, as a phrase for people.
    others: str = ""

    def fits(self, pieces: int, piece_bytes: int) -> bool:
        """Return whether there is room for so many pieces."""
        huge = round_up(piece_bytes, HUGE_PAGE_BYTES)
        pooled = min(pieces, self.node.pool_bytes // huge)
        ordinary = (pieces - pooled) * piece_bytes
        return ordinary <= self.node.ordinary_bytes and pooled * huge + ordinary <= self.size_bytes

    def largest_piece(self, pieces: int) -> int:
        """Return how large so many pieces may be."""
        least, most = 0, self.size_bytes // pieces
        while least < most:
            middle = (least + most + 1) // 2
            if self.fits(pieces, middle):
                least = middle
            else:
                most = middle - 1
        return least

    def without_pool(self) -> "Capacity":
        """Return the room for ordinary memory alone."""
        size = min(self.size_bytes, self.node.ordinary_bytes)
        return replace(self, size_bytes=size, node=replace(self.node, pool_bytes=0))

    def describe(self) -> str:
        """Say how much it is, and who has the rest."""
        pool = self.node.pool_bytes
        huge = f" ({size_text(pool)} in the pool of huge pages)" if pool else ""
        return f"{self.limited_by} {size_text(self.size_bytes)}{huge}{self.others}"


def capacity_left(
    node: NodeCapacity, limits: MemoryLimits, use: MemoryUse, others: str = ""
) -> Capacity:
    """Return the least of what the node and the operator's limits leave."""
    spared = NodeCapacity(max(0, node.ordinary_bytes - limits.reserve_bytes), node.pool_bytes)
    rooms = [(spared.ordinary_bytes + spared.pool_bytes, "this node can spare")]
    if limits.total_bytes:
        rooms.append((limits.total_bytes - use.total_bytes, "jobs.memory_bytes_max leaves"))
    if limits.per_user_bytes:
        rooms.append((limits.per_user_bytes - use.user_bytes, f"{PER_USER_BYTES} leaves"))
    least, whose = min(rooms)
    return Capacity(max(0, least), whose, spared, others)


def user_capacity_left(
    left: Capacity, ratio: float, use: MemoryUse, promised_bytes: int
) -> Capacity:
    """Return what is left of it for one user, whose share of all is limited to a ratio; 1: to none.

    Kept from one user is at least what others were promised and have not taken, up to half of all:
    beyond that a promise that nobody uses must not keep a job that runs from its memory.
    """
    all_bytes = use.total_bytes + left.size_bytes
    reserve = max(all_bytes - int(ratio * all_bytes), min(promised_bytes, all_bytes // 2))
    own = max(0, all_bytes - reserve - use.user_bytes)
    if ratio >= 1 or own >= left.size_bytes:
        return left
    return replace(left, size_bytes=own, limited_by=f"{PER_USER_RATIO} leaves")


def capacity_refusal(pieces: int, piece_bytes: int, left: Capacity) -> str | None:
    """Return None when so many pieces fit, else a sentence with what does."""
    if left.fits(pieces, piece_bytes):
        return None
    return (
        f"{pieces} x {size_text(piece_bytes)} of snapshot memory were asked for and "
        f"{left.describe()}: {pieces} x {size_text(left.largest_piece(pieces))} would fit"
    )


def size_text(count: int) -> str:
    """Return a size for people."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"


@dataclass(frozen=True, slots=True)
class MemoryForecast:
    """Memory that the ranks of a node will need: ``snapshot_bytes`` is one rank's state."""

    processes: int
    snapshot_bytes: int
    slots: int
    # Other nodes take part, so one of them has its replicas here: as many as it has slots. Those of
    # further ones are taken only as far as memory is left (vault/replication/receiver.py).
    replicas: bool

    def total_bytes(self, given: Sequence[int] = ()) -> int:
        """Return how much it will be; ``given``: the slots of each rank that has its own, in bytes.

        Who asked for less than was promised leaves the rest to others.
        """
        missing = max(0, self.processes - len(given))
        slots_bytes = sum(given) + missing * self.slots * self.snapshot_bytes
        return slots_bytes * (2 if self.replicas else 1)

    def copies_max(self, slots: int) -> int:
        """Return how many copies of one rank's state there are at most."""
        return self.processes * slots * (2 if self.replicas else 1)


def forecast_refusal(forecast: MemoryForecast, left: Capacity) -> str | None:
    """Return None when the job fits, else a sentence with what would."""
    if left.fits(forecast.copies_max(forecast.slots), forecast.snapshot_bytes):
        return None
    what = "slots and replicas" if forecast.replicas else "slots"
    return (
        f"snapshots of this job take {size_text(forecast.total_bytes())} on this node "
        f"({forecast.processes} ranks x {size_text(forecast.snapshot_bytes)} x {forecast.slots} "
        f"{what}) and {left.describe()}; {_what_fits(forecast, left)}"
    )


def _what_fits(forecast: MemoryForecast, left: Capacity) -> str:
    size = size_text(left.largest_piece(forecast.copies_max(forecast.slots)))
    smaller = f"{size} a rank would fit"
    for slots in range(forecast.slots - 1, SLOTS_MIN - 1, -1):
        if left.fits(forecast.copies_max(slots), forecast.snapshot_bytes):
            return f"{smaller}, or {slots} slots each (jobs.slots_per_rank of the agent)"
    return f"{smaller}; save a share in each data-parallel rank, or use fewer ranks on a node"
