"""Connection limits of the bulk port: who has a place, and who gives it up for a newer one. Pure.

Any process may connect, also one of another user on the host of a peer. So a connection that has
proven nothing yet has a place only until newer ones need it: the oldest goes. An agent proves a
job's key within milliseconds; who only keeps places has the oldest ones.

Hosts of peers are known: from them a key was proven, or the controller has named them. Each has a
share of the event loop of its own for connections that come to nothing, and all strangers have one
together, so that neither takes a peer's handshakes from it.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from everstep_agent.quotas.token_bucket import Rate, TokenBucket

T = TypeVar("T", bound=Hashable)

# Connections that have proven a lineage's key; each costs a descriptor and a task, and a thread
# while it moves bytes.
CONNECTIONS_MAX = 64
# Connections that have proven nothing yet: of all hosts, of one host, and of one that is known.
# A peer begins at most two streams for each of its ranks at once.
UNPROVEN_MAX = 512
UNPROVEN_OF_HOST_MAX = 32
UNPROVEN_OF_KNOWN_HOST_MAX = 256
# Hosts that are remembered: more than a node has peers.
_KNOWN_HOSTS_MAX = 1024
# Of the time of the event loop, for first words that prove nothing; so many seconds of it at once:
# the streams of 64 ranks, each of them two handshakes of TLS.
STRANGERS_WORK = Rate(0.03, 0.5)
KNOWN_HOST_WORK = Rate(0.05, 0.5)


class ConnectionLimits(Generic[T]):
    """Places of connections: of those that have proven a key, and of all others by their hosts."""

    def __init__(self) -> None:
        # Those that have proven nothing, and their hosts, oldest first.
        self._unproven: OrderedDict[T, str] = OrderedDict()
        self._by_host: dict[str, OrderedDict[T, None]] = {}
        # The one that was heard of last comes last.
        self._known_hosts: OrderedDict[str, TokenBucket] = OrderedDict()
        self._strangers = TokenBucket(STRANGERS_WORK, 0.0)
        self._proven = 0
        self.evicted = 0
        self.refused = 0

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

    def note_known(self, host: str, now_s: float) -> None:
        """A host is a peer's: connections of strangers take no place of it any more."""
        if host not in self._known_hosts:
            self._known_hosts[host] = TokenBucket(KNOWN_HOST_WORK, now_s)
        self._known_hosts.move_to_end(host)
        if len(self._known_hosts) > _KNOWN_HOSTS_MAX:
            self._known_hosts.popitem(last=False)

    def begin_work(self, host: str, seconds: float, now_s: float) -> bool:
        """Spend so much of the loop on the first words of a host; False where its share is spent.

        What was spent for one that proves a key is given back.
        """
        budget = self._known_hosts.get(host, self._strangers)
        if budget.overdraw(now_s, 0.0) > 0:
            return False
        budget.overdraw(now_s, seconds)
        return True

    def give_back_work(self, host: str, seconds: float, now_s: float) -> None:
        """The words were those of an agent."""
        self._known_hosts.get(host, self._strangers).overdraw(now_s, -seconds)

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
        known = host in self._known_hosts
        most = UNPROVEN_OF_KNOWN_HOST_MAX if known else UNPROVEN_OF_HOST_MAX
        own = self._by_host.get(host)
        if own is not None and len(own) >= most:
            return next(iter(own))
        if len(self._unproven) < UNPROVEN_MAX:
            return None
        strangers = (one for one, of in self._unproven.items() if of not in self._known_hosts)
        return next(strangers, next(iter(self._unproven)))
