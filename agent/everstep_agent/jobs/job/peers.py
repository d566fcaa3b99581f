"""Peers of a job: its launcher and its ranks, as far as they are connected now."""

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from everstep_agent.concurrency.change_signal import ChangeSignal
from everstep_common.trainer_messages import Join, Standbys


class LauncherPeer(Protocol):
    """A connected launcher."""

    def send(self, message: object) -> None:
        """Send a message, in order."""
        ...

    def hang_up(self) -> None:
        """End the connection."""
        ...


class RankPeer(Protocol):
    """A connected training process."""

    def hang_up(self) -> None:
        """End the connection."""
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
    # Watches a launcher that is away.
    absence: "asyncio.Task[None] | None" = None

    @property
    def connected(self) -> bool:
        """Return whether a launcher is there."""
        return self.peer is not None

    def connect(self, peer: LauncherPeer, request: Join) -> None:
        """A launcher joined."""
        self.peer, self.request, self.distrust = peer, request, ""

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
    _peers: dict[tuple[int, int], RankPeer] = field(default_factory=dict)

    @property
    def pids(self) -> list[int]:
        """Return their processes."""
        return list(self._pids.values())

    def holder(self, generation: int, rank: int) -> int | None:
        """Return the process that is connected as a rank."""
        return self._pids.get((generation, rank))

    def attach(self, generation: int, rank: int, pid: int, peer: RankPeer) -> None:
        """A process is connected as a rank."""
        self._pids[generation, rank], self._peers[generation, rank] = pid, peer

    def detach(self, generation: int, rank: int) -> None:
        """Its connection has ended."""
        del self._pids[generation, rank], self._peers[generation, rank]
        self.detached.notify()

    def has(self, generation: int, rank: int | None = None) -> bool:
        """Return whether a rank (None: any) of a generation is connected."""
        return any(g == generation and rank in (None, r) for g, r in self._pids)

    def hang_up(self) -> None:
        """End all their connections."""
        for peer in self._peers.values():
            peer.hang_up()
