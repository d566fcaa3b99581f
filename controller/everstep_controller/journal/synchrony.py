"""Synchrony of a journal: whether its commits are on a second server before they count. Pure.

A server that has ``synchronous_standby_names`` acknowledges nothing that is on no standby; where it
is empty a failover loses what no standby has received. Every user may read it. How far a standby
is may be read by members of ``pg_read_all_stats`` alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

# Of synchronous_commit: those that wait for a standby.
_WAITING = ("on", "remote_apply", "remote_write")
# A switchover is over by then, and the new leader has taken its standby up.
PATIENCE_NS = 10_000_000_000


class WantedSynchrony(Enum):
    """Wish of the operator: when commits on one server alone are a finding."""

    # Where there once were others.
    AUTO = "auto"
    ALWAYS = "required"
    NEVER = "ignored"


@dataclass(frozen=True, slots=True)
class Standby:
    """A standby that is connected; "" and None for what this user is not shown."""

    name: str
    # streaming, catchup, backup ...
    state: str = ""
    # sync, quorum, potential, async
    sync_state: str = ""
    # What it has not yet on its disk; how long the newest of it took.
    lag_bytes: int | None = None
    lag_s: float | None = None

    def __str__(self) -> str:
        told = [self.sync_state or "state not shown"]
        if self.lag_bytes:
            told.append(f"{self.lag_bytes / 1e6:.1f} MB behind")
        return f"{self.name} ({', '.join(told)})"


@dataclass(frozen=True, slots=True)
class Replication:
    """Replication as the server that takes writes tells it."""

    # Its address; "" on a socket.
    server: str
    # Its synchronous_standby_names, and synchronous_commit of a controller's connection.
    standby_names: str
    commit: str
    standbys: tuple[Standby, ...] = ()

    @property
    def is_synchronous(self) -> bool:
        """Return whether a commit waits for a standby before it is acknowledged."""
        return bool(self.standby_names.strip()) and self.commit in _WAITING


@dataclass(frozen=True, slots=True)
class Synchrony:
    """The newest reading, and since when commits have been synchronous, or have not."""

    replication: Replication
    since_ns: int
    read_ns: int

    @property
    def is_synchronous(self) -> bool:
        """Return whether a commit waits for a standby before it is acknowledged."""
        return self.replication.is_synchronous


@dataclass(frozen=True, slots=True)
class LostSynchrony:
    """Commits that are on one server alone: why, what is beside it, and since when."""

    why: str
    standbys: str
    since_ns: int

    @property
    def sentence(self) -> str:
        """Return what a failover does now."""
        return (
            f"commits of the journal are on one server alone ({self.why}): a failover loses what "
            "its standby has not received, unless this controller lives to write it again"
        )


def observe(before: Synchrony | None, told: Replication, now_ns: int) -> Synchrony:
    """Return what is known after a reading."""
    is_same = before is not None and before.is_synchronous == told.is_synchronous
    return Synchrony(told, before.since_ns if before is not None and is_same else now_ns, now_ns)


def judge(
    seen: Synchrony | None, wanted: WantedSynchrony, *, was_synchronous: bool
) -> LostSynchrony | None:
    """Return what a failover can lose now and somebody expects that it cannot; None for nothing."""
    expected = wanted is WantedSynchrony.ALWAYS or (
        wanted is WantedSynchrony.AUTO and was_synchronous
    )
    if seen is None or seen.is_synchronous or not expected:
        return None
    if seen.read_ns - seen.since_ns < PATIENCE_NS:
        return None
    told = seen.replication
    why = "synchronous_standby_names is empty"
    if told.standby_names.strip():
        why = f"synchronous_commit is {told.commit!r}"
    return LostSynchrony(why, _listed(told.standbys), seen.since_ns)


def _listed(standbys: Iterable[Standby]) -> str:
    listed = ", ".join(str(one) for one in standbys)
    return f"standbys: {listed}" if listed else "no standby is connected"
