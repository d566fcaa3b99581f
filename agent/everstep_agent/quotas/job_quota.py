"""Job quota: how many jobs a user has on this node, and begins here in a minute."""

from collections.abc import Callable
from dataclasses import dataclass

from everstep_agent.quotas.user_quotas import KEYS, Quota, Rate, UserRates, UserRefusals

_MINUTE_S = 60.0
_BURSTS_A_MINUTE = 3


@dataclass(frozen=True, slots=True)
class JobLimit:
    """What one user may have; a third of those of a minute may begin at once."""

    at_once: int
    per_min: float


class JobQuota:
    """Jobs of the users of this node."""

    def __init__(self, limit: JobLimit, refusals: UserRefusals, now_s: Callable[[], float]) -> None:
        self._limit = limit
        self._refusals = refusals
        self._now_s = now_s
        self._rates = UserRates(Rate(limit.per_min / _MINUTE_S, limit.per_min / _BURSTS_A_MINUTE))

    def refusal(self, user: int, jobs: int) -> str:
        """Count a new job of a user who has so many and return ""; or return why it is refused."""
        if jobs >= self._limit.at_once:
            refused, problem = Quota.JOBS, f"has {jobs} jobs on this node already"
        elif not self._rates.take(user, self._now_s()):
            refused = Quota.NEW_JOBS
            problem = f"begins more than {self._limit.per_min:g} jobs a minute on this node"
        else:
            return ""
        self._refusals.count(refused, user)
        return f"this user {problem}: wait, or have {KEYS[refused]} of the agent raised"
