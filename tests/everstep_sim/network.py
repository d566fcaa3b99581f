"""Simulated network: which channels are cut, between which ends, in which direction."""

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from itertools import product

# The controller as an end of a connection, and any end at all.
CONTROLLER = "controller"
ANYBODY = "*"


class Transport(Enum):
    """Transport between two machines; each may fail by itself."""

    # Stream of an agent to the controller, connects to a bulk port, probes of liveness.
    STREAM = "stream"
    TCP = "tcp"
    UDP = "udp"


class Network:
    """Cuts as transitions: a cut holds until it is healed, and several may overlap."""

    def __init__(self) -> None:
        self._cuts: Counter[tuple[Transport, str, str]] = Counter()
        # Share of datagrams that are lost, besides what is cut.
        self.udp_loss = 0.0
        # Nodes that a router says are unreachable, and the share of connects of which it says so.
        self.says_unreachable: dict[str, float] = {}

    def cut(self, channels: Iterable[Transport], source: str, target: str) -> None:
        """Let nothing pass from one end to the other any more."""
        self._cuts.update((channel, source, target) for channel in channels)

    def heal(self, channels: Iterable[Transport], source: str, target: str) -> None:
        """Take such a cut back."""
        for channel in channels:
            self._cuts -= Counter([(channel, source, target)])

    def passes(self, channel: Transport, source: str, target: str) -> bool:
        """Return whether anything gets from one end to the other."""
        if not self._cuts:
            return True
        ends = product((source, ANYBODY), (target, ANYBODY))
        return not any((channel, *end) in self._cuts for end in ends)

    def joins(self, channel: Transport, one: str, other: str) -> bool:
        """Return whether a question gets there, and its answer back."""
        if not self._cuts:
            return True
        return self.passes(channel, one, other) and self.passes(channel, other, one)
