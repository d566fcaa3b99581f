"""Connection limits of the bulk port: who has a place, and who gives it up for a newer one. Pure.

Any process may connect, also one of another user on the host of a peer. So a connection that has
proven nothing yet has a place only until newer ones need it: the oldest goes. An agent proves a
job's key within milliseconds; who only keeps places has the oldest ones.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

# Connections that have proven a lineage's key; each costs a descriptor and a task, and a thread
# while it moves bytes.
CONNECTIONS_MAX = 64
# Connections that have proven nothing yet: of all hosts, of one host, and of one from which a key
# was proven. A peer begins at most two streams for each of its ranks at once.
UNPROVEN_MAX = 512
UNPROVEN_OF_HOST_MAX = 32
UNPROVEN_OF_PROVEN_HOST_MAX = 256
# Hosts from which a key was proven that are remembered: more than a node has peers.
_PROVEN_HOSTS_MAX = 1024


class ConnectionLimits(Generic[T]):
    """Places of connections: of those that have proven a key, and of all others by their hosts."""

    def __init__(self) -> None:
        # Those that have proven nothing, and their hosts, oldest first.
        self._unproven: OrderedDict[T, str] = OrderedDict()
        self._by_host: dict[str, OrderedDict[T, None]] = {}
        # Of hosts from which a key was proven, the one that did so last comes last.
        self._proven_hosts: OrderedDict[str, None] = OrderedDict()
        self._proven = 0
        self.evicted = 0

    @property
    def unproven(self) -> int:
        """Return how many connections have proven nothing yet."""
        return len(self._unproven)

    def admit_unproven(self, connection: T, host: str) -> T | None:
        """Give a place to a new connection; return the one that loses its place for it, if any."""
        last = self._evicted_for(host)
        if last is not None:
            self.release_unproven(last)
            self.evicted += 1
        self._unproven[connection] = host
        self._by_host.setdefault(host, OrderedDict())[connection] = None
        return last

    def release_unproven(self, connection: T) -> bool:
        """A connection has ended, or has proven a key; return whether it had proven none before."""
        host = self._unproven.pop(connection, None)
        if host is None:
            return False
        del self._by_host[host][connection]
        if not self._by_host[host]:
            del self._by_host[host]
        return True

    def note_proof(self, host: str) -> None:
        """A key was proven from a host: connections of strangers take no place of it any more."""
        self._proven_hosts[host] = None
        self._proven_hosts.move_to_end(host)
        if len(self._proven_hosts) > _PROVEN_HOSTS_MAX:
            self._proven_hosts.popitem(last=False)

    def admit_proven(self) -> bool:
        """Count a connection that has proven itself; False for one too many."""
        if self._proven >= CONNECTIONS_MAX:
            return False
        self._proven += 1
        return True

    def release_proven(self) -> None:
        """A connection that was admitted has ended."""
        self._proven -= 1

    def _evicted_for(self, host: str) -> T | None:
        """Return who has to go for one more connection of a host."""
        known = host in self._proven_hosts
        most = UNPROVEN_OF_PROVEN_HOST_MAX if known else UNPROVEN_OF_HOST_MAX
        own = self._by_host.get(host)
        if own is not None and len(own) >= most:
            return next(iter(own))
        if len(self._unproven) < UNPROVEN_MAX:
            return None
        strangers = (one for one, of in self._unproven.items() if of not in self._proven_hosts)
        return next(strangers, next(iter(self._unproven)))
