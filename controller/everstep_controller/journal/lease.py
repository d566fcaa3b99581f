"""Lease of a journal: when who holds it is considered gone, from what an observer saw. Pure.

The row in the database says who writes the journal and counts the writes, one a second at least. No
clock of two machines is compared: an observer looks at the count, each time with a write of its
own, and by its own monotonic clock the count has stood still for so long. A look that fails, or
that comes late because the observer stood still itself, shows nothing of the holder: it begins
anew, and with more patience, since the holder has to find the database again as well.

A holder that has no connection to the database cannot write. One whose process has ended loses its
connections at once, and is gone sooner than one that merely writes nothing.
"""

from dataclasses import dataclass, replace

# A holder writes once a second at least, and more often where there is work.
BEAT_S = 1.0
# An observer looks so often; looks that are further apart do not belong together.
LOOK_S = 0.5
_APART_MAX_NS = 2_000_000_000
# So long the count stands still: five beats, more than a slow database takes for one (3 s).
GONE_NS = 5_000_000_000
# So long, where its connections are gone as well: one that lives connects again at once.
GONE_UNCONNECTED_NS = 2_000_000_000
# For so long after it began to write, a holder is sure that nobody has succeeded it: no observer
# takes a lease sooner.
SURE_S = GONE_UNCONNECTED_NS / 1e9
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
    # The database lists a connection of the holder.
    is_connected: bool = False


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
    # Since when the holder has no connection, which it was seen to have; None while it has one.
    unconnected_since_ns: int | None = None
    was_connected: bool = False

    def still_ns(self) -> int:
        """Return for how long the count is seen to stand still."""
        return 0 if self.since_ns is None else self.last.at_ns - self.since_ns

    def unconnected_ns(self) -> int:
        """Return for how long the holder is seen to have no connection."""
        since_ns = self.unconnected_since_ns
        return 0 if since_ns is None else self.last.at_ns - since_ns

    @property
    def is_gone(self) -> bool:
        """Return whether the holder is considered gone, and its lease may be taken."""
        if self.last.seen is None:
            return False
        if self.last.seen.holder is None:
            return True
        if self.after_outage:
            return self.still_ns() >= GONE_AFTER_OUTAGE_NS
        return (
            self.still_ns() >= GONE_NS
            or min(self.still_ns(), self.unconnected_ns()) >= GONE_UNCONNECTED_NS
        )


def observe(before: Observation | None, look: Look) -> Observation:
    """Return what is known after a look."""
    if look.seen is None:
        return Observation(look, None, after_outage=True)
    known = before.last.seen if before is not None else None
    if before is None or (known is not None and _has_moved(known, look.seen)):
        is_same = known is not None and known.holder == look.seen.holder
        return _connected(Observation(look, look.at_ns), before if is_same else None)
    apart_ns = look.at_ns - before.last.at_ns
    if before.since_ns is None or not 0 <= apart_ns <= _APART_MAX_NS:
        return Observation(look, look.at_ns, after_outage=True)
    return _connected(replace(before, last=look), before)


def _connected(now: Observation, before: Observation | None) -> Observation:
    """Return an observation with what it says of the holder's connections."""
    look = now.last
    if look.seen is None or look.seen.is_connected:
        return replace(now, unconnected_since_ns=None, was_connected=look.seen is not None)
    # Where the database shows nobody's connections, or not this holder's, that says nothing.
    if before is None or not before.was_connected:
        return replace(now, unconnected_since_ns=None, was_connected=False)
    since_ns = before.unconnected_since_ns
    since_ns = look.at_ns if since_ns is None else since_ns
    return replace(now, unconnected_since_ns=since_ns, was_connected=True)


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
