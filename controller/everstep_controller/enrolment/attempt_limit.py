"""Attempt limit: how often strangers may be refused before they are not heard any more. Pure.

A wrong token costs a TLS handshake, a millisecond of the controller. Each address may be refused a
few times at once and then once a second; all addresses that are no known node's together twenty
times a second. Nodes that are known have a share that strangers do not touch.
"""

from collections import OrderedDict
from dataclasses import dataclass

# A person who mistypes, or a node with an old token that tries again.
_OF_ADDRESS = (1.0, 20.0)
_OF_STRANGERS = (20.0, 200.0)
_ADDRESSES_MAX = 10_000


@dataclass(slots=True)
class _Allowance:
    """What is left of a rate: so many a second, so many at once."""

    per_s: float
    burst: float
    left: float
    at_s: float

    def refill(self, now_s: float) -> None:
        """Add what has come since."""
        back = max(0.0, now_s - self.at_s) * self.per_s
        self.left, self.at_s = min(self.burst, self.left + back), now_s


class AttemptLimit:
    """Who is heard, by who was refused lately."""

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, _Allowance] = OrderedDict()
        per_s, burst = _OF_STRANGERS
        self._strangers = _Allowance(per_s, burst, burst, 0.0)
        # Connections that were closed unheard.
        self.unheard = 0

    def hears(self, address: str, now_s: float, *, known: bool) -> bool:
        """Return whether a connection is heard; ``known``: its address is that of a node."""
        self._strangers.refill(now_s)
        allowance = self._addresses.get(address)
        if allowance is not None:
            allowance.refill(now_s)
        heard = (allowance is None or allowance.left >= 1) and (known or self._strangers.left >= 1)
        self.unheard += not heard
        return heard

    def note_refused(self, address: str, now_s: float, *, known: bool) -> None:
        """Count somebody who was refused, said nothing, or spoke no TLS."""
        per_s, burst = _OF_ADDRESS
        allowance = self._addresses.setdefault(address, _Allowance(per_s, burst, burst, now_s))
        self._addresses.move_to_end(address)
        allowance.refill(now_s)
        allowance.left = max(0.0, allowance.left - 1)
        if not known:
            self._strangers.refill(now_s)
            self._strangers.left = max(0.0, self._strangers.left - 1)
        while len(self._addresses) > _ADDRESSES_MAX:
            self._addresses.popitem(last=False)
