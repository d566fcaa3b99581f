"""Lease of a journal: when who holds it is considered gone, from what an observer saw. Pure.

The row in the database says who writes the journal and counts the writes, one a second at least. No
clock of two machines is compared: an observer looks at the count, each time with a write of its
own, and by its own monotonic clock the count has stood still for so long. A look that fails, or
that comes late because the observer stood still itself, shows nothing of the holder: it begins
anew, and with more patience, since the holder has to find the database again as well.
"""

from dataclasses import dataclass, replace

# A holder writes once a second at least, and more often where there is work.
BEAT_S = 1.0
# An observer looks so often; looks that are further apart do not belong together.
LOOK_S = 0.5
_APART_MAX_NS = 2_000_000_000
# So long the count stands still: five beats, more than a slow database takes for one (3 s).
GONE_NS = 5_000_000_000
# After an outage: the holder connects again within 3 s, asks what was kept, and writes.
GONE_AFTER_OUTAGE_NS = 15_000_000_000


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a machine; two that are equal are the same one."""

    host: str
    # The boot of the machine and the namespace in which its processes are counted.
    place: str
    pid: int
    # When it was started, in the kernel's ticks since the boot.
    started: int


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease: an id of this holding alone, and its process."""

    id: str
    process: Process

    def __str__(self) -> str:
        return f"process {self.process.pid} on {self.process.host}"


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """Lease as it was read: how often it has changed hands, who holds it, and its count."""

    term: int
    # None: it was given back.
    holder: Holder | None
    beat: int


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the lease, when it was over; None where the database did not read and write."""

    at_ns: int
    seen: LeaseSeen | None


@dataclass(frozen=True, slots=True)
class Observation:
    """What an observer has seen in a row: since when the count stands still."""

    last: Look
    # None: nothing was seen yet, or nothing since the last failure.
    since_ns: int | None = None
    after_outage: bool = False

    def still_ns(self) -> int:
        """Return for how long the count is seen to stand still."""
        return 0 if self.since_ns is None else self.last.at_ns - self.since_ns

    @property
    def is_gone(self) -> bool:
        """Return whether the holder is considered gone, and its lease may be taken."""
        if self.last.seen is None:
            return False
        patience_ns = GONE_AFTER_OUTAGE_NS if self.after_outage else GONE_NS
        return self.last.seen.holder is None or self.still_ns() >= patience_ns


def observe(before: Observation | None, look: Look) -> Observation:
    """Return what is known after a look."""
    if look.seen is None:
        return Observation(look, None, after_outage=True)
    if before is None:
        return Observation(look, look.at_ns)
    if before.last.seen is not None and _has_moved(before.last.seen, look.seen):
        return Observation(look, look.at_ns)
    apart_ns = look.at_ns - before.last.at_ns
    if before.since_ns is None or not 0 <= apart_ns <= _APART_MAX_NS:
        return Observation(look, look.at_ns, after_outage=True)
    return replace(before, last=look)


def refusal(observation: Observation) -> str:
    """Return why the lease may not be taken, and what to do."""
    seen = observation.last.seen
    if seen is None:
        return "its lease cannot be read and written"
    return (
        f"another controller ({seen.holder}) writes this journal, and did so within the last "
        f"{observation.still_ns() / 1e9:.1f} s; stop it first, or configure another journal"
    )


def _has_moved(before: LeaseSeen, now: LeaseSeen) -> bool:
    return (before.term, before.holder, before.beat) != (now.term, now.holder, now.beat)
