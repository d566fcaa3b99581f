"""Whether a job's snapshots will fit on a node, before any of its processes start. Pure."""

from dataclasses import dataclass

from everstep_agent.vault.budget import Room, size_text

# With fewer, one copy would be overwritten while no other is recoverable.
SLOTS_MIN = 2


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the ranks of one node will need: ``snapshot_bytes`` is the state of one rank."""

    processes: int
    snapshot_bytes: int
    slots: int
    # Other nodes take part, so one of them has its replicas here: as many as it has slots.
    replicas: bool

    def total_bytes(self, slots: int | None = None) -> int:
        """Return the memory of so many slots for each rank (those planned if not said)."""
        return self.copies(self.slots if slots is None else slots) * self.snapshot_bytes

    def copies(self, slots: int) -> int:
        """Return how many copies of one rank's state there are at most."""
        return self.processes * slots * (2 if self.replicas else 1)


def shortage(forecast: Forecast, left: Room) -> str | None:
    """Return None when the job fits, else a sentence with what would."""
    wanted = forecast.total_bytes()
    if wanted <= left.size_bytes:
        return None
    what = "slots and replicas" if forecast.replicas else "slots"
    return (
        f"snapshots of this job take {size_text(wanted)} on this node ({forecast.processes} ranks "
        f"x {size_text(forecast.snapshot_bytes)} x {forecast.slots} {what}) and {left.whose} "
        f"{size_text(left.size_bytes)}; {_what_fits(forecast, left.size_bytes)}"
    )


def _what_fits(forecast: Forecast, room_bytes: int) -> str:
    size = size_text(room_bytes // forecast.copies(forecast.slots))
    smaller = f"{size} a rank would fit"
    for slots in range(forecast.slots - 1, SLOTS_MIN - 1, -1):
        if forecast.total_bytes(slots) <= room_bytes:
            return f"{smaller}, or {slots} slots each (jobs.slots_per_rank of the agent)"
    return f"{smaller}; save a share in each data-parallel rank, or use fewer ranks on a node"
