"""Peers of a job: its launcher and its ranks, as far as they are connected now."""

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from everstep_agent.concurrency.change_signal import ChangeSignal
from everstep_common.launcher_messages import Join
from everstep_common.reports import Standbys

# The protocol of launchers that look at ranks before they stop them.
_LOOKS_SINCE = 10
# The first protocol whose launchers tell when ranks enqueued their newest collectives.
_RECENT_SINCE = 12
# The first protocol whose launchers know whether they wait as spares, and give a person's question
# more time.
_SPARES_SINCE = _PATIENT_SINCE = 16


class LauncherPeer(Protocol):
    """A connected launcher."""

    def send(self, message: object) -> None:
        """Send a message, in order."""
        ...

    def hang_up(self) -> None:
        """End the connection."""
        ...

    def is_hung_up(self) -> bool:
        """Return whether the launcher has ended it; that may not be read yet."""
        ...

    async def close(self) -> None:
        """End the connection, and return when all that it said has been heard."""
        ...


@dataclass(slots=True)
class LauncherLink:
    """The launcher of a job while it is connected, and what it asked for when it joined."""

    peer: LauncherPeer | None = None
    request: Join | None = None
    # The warm standbys that a launcher has; None: not known.
    standbys: Standbys | None = None
    # Why a launcher is no longer relied on; "" while it is.
    distrust: str = ""
    # What its job is known by, in what is reported of it.
    job: str = ""
    # Watches a launcher that is away.
    absence: "asyncio.Task[None] | None" = None

    @property
    def connected(self) -> bool:
        """Return whether a launcher is there."""
        return self.peer is not None

    @property
    def looks(self) -> bool:
        """Return whether the launcher looks at ranks before it stops them."""
        return self.request is not None and self.request.protocol >= _LOOKS_SINCE

    @property
    def tells_recent(self) -> bool:
        """Return whether the launcher tells when ranks enqueued their newest collectives."""
        return self.request is not None and self.request.protocol >= _RECENT_SINCE

    @property
    def knows_spares(self) -> bool:
        """Return whether the launcher understands that it waits as a spare."""
        return self.request is not None and self.request.protocol >= _SPARES_SINCE

    @property
    def is_patient(self) -> bool:
        """Return whether the launcher gives a person's question more time."""
        return self.request is not None and self.request.protocol >= _PATIENT_SINCE

    def connect(self, peer: LauncherPeer, request: Join, job: str) -> None:
        """A launcher joined."""
        self.peer, self.request, self.job, self.distrust = peer, request, job, ""

    def take_over(self, other: "LauncherLink") -> None:
        """The launcher of another link is this one's from now on."""
        self.peer, self.request, self.standbys = other.peer, other.request, other.standbys
        self.distrust, self.job = other.distrust, other.job
        other.peer = other.request = other.standbys = None

    def send(self, message: object) -> bool:
        """Send a message, in order; False where no launcher is."""
        if self.peer is None:
            return False
        self.peer.send(message)
        return True


@dataclass(slots=True)
class ConnectedRanks:
    """The training processes that are connected, by generation and rank."""

    detached: ChangeSignal = field(default_factory=ChangeSignal)
    _pids: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def pids(self) -> list[int]:
        """Return their processes."""
        return list(self._pids.values())

    def holder(self, generation: int, rank: int) -> int | None:
        """Return the process that is connected as a rank."""
        return self._pids.get((generation, rank))

    def attach(self, generation: int, rank: int, pid: int) -> None:
        """A process is connected as a rank."""
        self._pids[generation, rank] = pid

    def detach(self, generation: int, rank: int) -> None:
        """Its connection has ended."""
        del self._pids[generation, rank]
        self.detached.notify()

    def has(self, generation: int, rank: int | None = None) -> bool:
        """Return whether a rank (None: any) of a generation is connected."""
        return any(g == generation and rank in (None, r) for g, r in self._pids)
