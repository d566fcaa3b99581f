"""Whether a job's snapshots will fit on a node, before any of its processes start. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from everstep_agent.vault.memory.capacity import Room, size_text

# With fewer, one copy would be overwritten while no other is recoverable.
SLOTS_MIN = 2


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the ranks of one node will need: ``snapshot_bytes`` is the state of one rank."""

    processes: int
    snapshot_bytes: int
    slots: int
    # Other nodes take part, so one of them has its replicas here: as many as it has slots. Those of
    # further ones are taken only as far as memory is left (vault/replication/replica_admission.py).
    replicas: bool

    def total_bytes(self, given: Sequence[int] = ()) -> int:
        """Return how much it will be; ``given``: the slots of each rank that has its own, in bytes.

        Who asked for less than was promised leaves the rest to others.
        """
        missing = max(0, self.processes - len(given))
        slots_bytes = sum(given) + missing * self.slots * self.snapshot_bytes
        return slots_bytes * (2 if self.replicas else 1)

    def copies(self, slots: int) -> int:
        """Return how many copies of one rank's state there are at most."""
        return self.processes * slots * (2 if self.replicas else 1)


def shortage(forecast: Forecast, left: Room) -> str | None:
    """Return None when the job fits, else a sentence with what would."""
    if left.fits(forecast.copies(forecast.slots), forecast.snapshot_bytes):
        return None
    what = "slots and replicas" if forecast.replicas else "slots"
    return (
        f"snapshots of this job take {size_text(forecast.total_bytes())} on this node "
        f"({forecast.processes} ranks x {size_text(forecast.snapshot_bytes)} x {forecast.slots} "
        f"{what}) and {left.sentence()}; {_what_fits(forecast, left)}"
    )


def _what_fits(forecast: Forecast, left: Room) -> str:
    size = size_text(left.largest(forecast.copies(forecast.slots)))
    smaller = f"{size} a rank would fit"
    for slots in range(forecast.slots - 1, SLOTS_MIN - 1, -1):
        if left.fits(forecast.copies(slots), forecast.snapshot_bytes):
            return f"{smaller}, or {slots} slots each (jobs.slots_per_rank of the agent)"
    return f"{smaller}; save a share in each data-parallel rank, or use fewer ranks on a node"
