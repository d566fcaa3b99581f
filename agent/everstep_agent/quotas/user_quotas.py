"""User quotas: rates that each user of the node has for itself, and the counts of refusals.

Users are told apart by their numbers, as the kernel gives them for the other end of a Unix socket.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from everstep_agent.quotas.token_bucket import Rate, TokenBucket

# Users that are counted by themselves, and whose rates are. A user may have 65,536 numbers of its
# own in a user namespace (subuid(5)): all beyond these are one.
USERS_MAX = 256
OTHER_USERS = -1
# For how long a user counts as limited after a refusal, in seconds.
_LIMITED_S = 60.0

_MINUTE_S = 60.0
_BURSTS_A_MINUTE = 3


class Quota(Enum):
    """What is limited for each user; the value names it in metrics."""

    CONNECTIONS = "connections"
    CONNECTION_RATE = "connection_rate"
    HEALTH_CONNECTIONS = "health_connections"
    HEALTH_RATE = "health_rate"
    JOBS = "jobs"
    NEW_JOBS = "new_jobs"
    MEMORY = "memory"
    # Of which a user who runs no agent may have nothing.
    BULK_PORT = "bulk_port"


# The key of the agent's configuration that changes each, where one does.
KEYS: Mapping[Quota, str] = {
    Quota.CONNECTIONS: "jobs.connections_per_user_max",
    Quota.CONNECTION_RATE: "jobs.connections_per_user_per_s",
    Quota.HEALTH_CONNECTIONS: "health_connections_per_user_max",
    Quota.HEALTH_RATE: "health_questions_per_user_per_s",
    Quota.JOBS: "jobs.jobs_per_user_max",
    Quota.NEW_JOBS: "jobs.new_jobs_per_user_per_min",
    Quota.MEMORY: "jobs.memory_per_user_max_ratio",
}


class UserRates:
    """One rate for each user, in a bounded number of them. Pure."""

    def __init__(self, rate: Rate, users_max: int = USERS_MAX) -> None:
        self._rate = rate
        self._users_max = users_max
        # Of the users, the one that took something last comes last.
        self._buckets: OrderedDict[int, TokenBucket] = OrderedDict()

    def spend_one(self, user: int, now_s: float) -> bool:
        """Take one of a user's; False where none is left."""
        return self._rate.per_s <= 0 or self._bucket(user, now_s).spend_one(now_s)

    def overdraw(self, user: int, now_s: float, count: float) -> float:
        """Take so many of a user's; return for how many seconds it shall wait then."""
        return 0.0 if self._rate.per_s <= 0 else self._bucket(user, now_s).overdraw(now_s, count)

    def _bucket(self, user: int, now_s: float) -> TokenBucket:
        if user not in self._buckets and len(self._buckets) >= self._users_max:
            self._forget_idle(now_s)
            if len(self._buckets) >= self._users_max:
                user = OTHER_USERS
        found = self._buckets.setdefault(user, TokenBucket(self._rate, now_s))
        self._buckets.move_to_end(user)
        return found

    def _forget_idle(self, now_s: float) -> None:
        while self._buckets and next(iter(self._buckets.values())).is_full(now_s):
            self._buckets.popitem(last=False)


class UserRefusals:
    """How often each user was refused by each quota, and who is being refused now."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.counts: Counter[tuple[int, Quota]] = Counter()
        self._last_s: dict[tuple[int, Quota], float] = {}

    def count(self, quota: Quota, user: int) -> None:
        """A user was refused."""
        if (user, quota) not in self.counts and len(self.counts) >= USERS_MAX:
            user = OTHER_USERS
        self.counts[user, quota] += 1
        self._last_s[user, quota] = self._now_s()

    def by_name(self) -> dict[tuple[int, str], int]:
        """Return the counts by user and name of the quota."""
        return {(user, quota.value): count for (user, quota), count in self.counts.items()}

    def limited_now(self) -> dict[int, dict[str, int]]:
        """Return the users refused within the last minute: how often in all, by key to change."""
        found: dict[int, dict[str, int]] = {}
        now_s = self._now_s()
        for (user, quota), at_s in sorted(self._last_s.items(), key=lambda one: one[0][0]):
            if now_s - at_s < _LIMITED_S and quota in KEYS:
                found.setdefault(user, {})[KEYS[quota]] = self.counts[user, quota]
        return found

    def refused_now(self, quota: Quota) -> dict[int, int]:
        """Return the users refused by a quota within the last minute: how often in all."""
        now_s = self._now_s()
        return {
            user: self.counts[user, refused]
            for (user, refused), at_s in sorted(self._last_s.items(), key=lambda one: one[0][0])
            if refused is quota and now_s - at_s < _LIMITED_S
        }


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
        elif not self._rates.spend_one(user, self._now_s()):
            refused = Quota.NEW_JOBS
            problem = f"begins more than {self._limit.per_min:g} jobs a minute on this node"
        else:
            return ""
        self._refusals.count(refused, user)
        return f"this user {problem}: wait, or have {KEYS[refused]} of the agent raised"
