"""Connection quota: how many connections a user has to one socket, and makes in a second."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from everstep_agent.quotas.token_bucket import Rate
from everstep_agent.quotas.user_quotas import KEYS, Quota, UserRates, UserRefusals

# A user who made no connection for so many seconds may make that many seconds' worth at once.
BURST_S = 4.0


@dataclass(frozen=True, slots=True)
class ConnectionLimit:
    """Limits of one user at a socket, and the names of their quotas."""

    at_once: int
    per_s: float
    at_once_quota: Quota = Quota.CONNECTIONS
    rate_quota: Quota = Quota.CONNECTION_RATE


class ConnectionQuota:
    """Connections of the users to one socket."""

    def __init__(
        self, limit: ConnectionLimit, refusals: UserRefusals, now_s: Callable[[], float]
    ) -> None:
        self._limit = limit
        self._refusals = refusals
        self._now_s = now_s
        self._rates = UserRates(Rate(limit.per_s, limit.per_s * BURST_S))
        self._open: Counter[int] = Counter()

    @property
    def open_connections(self) -> Mapping[int, int]:
        """Return how many connections each user has now."""
        return self._open

    def enter(self, user: int) -> str:
        """Count a new connection and return ""; or return why it is refused, in a sentence."""
        limit = self._limit
        if self._open[user] >= limit.at_once:
            refused = limit.at_once_quota
            problem = f"this user has {limit.at_once} connections to the agent already"
        elif not self._rates.spend_one(user, self._now_s()):
            refused = limit.rate_quota
            problem = f"this user makes more than {limit.per_s:g} connections a second to the agent"
        else:
            self._open[user] += 1
            return ""
        if not self._open[user]:
            del self._open[user]
        self._refusals.count(refused, user)
        return f"{problem}: end some processes, or have {KEYS[refused]} of the agent raised"

    def leave(self, user: int) -> None:
        """A connection that was counted has ended."""
        self._open[user] -= 1
        if not self._open[user]:
            del self._open[user]
