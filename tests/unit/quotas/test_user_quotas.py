"""Rates of users, their refusals, and what nobody can do to the counts."""

from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.quotas.connection_quota import BURST_S, ConnectionLimit, ConnectionQuota
from everstep_agent.quotas.token_bucket import Rate
from everstep_agent.quotas.user_quotas import (
    OTHER_USERS,
    USERS_MAX,
    JobLimit,
    JobQuota,
    Quota,
    UserRates,
    UserRefusals,
)

_NOBODY = 65534


class _Clock:
    """Time that only the test moves."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def _quota(clock: _Clock, at_once: int = 256, per_s: float = 128.0) -> ConnectionQuota:
    return ConnectionQuota(ConnectionLimit(at_once, per_s), UserRefusals(clock), clock)


def test_a_user_has_its_burst_and_then_its_rate() -> None:
    rates = UserRates(Rate(per_s=2.0, burst=4))
    assert [rates.spend_one(1, 0.0) for _ in range(6)] == [True] * 4 + [False] * 2
    assert [rates.spend_one(1, 1.0) for _ in range(3)] == [True, True, False]
    # However long the pause was, it is a burst and no more.
    assert sum(rates.spend_one(1, 1000.0) for _ in range(100)) == 4


def test_one_user_takes_nothing_of_another() -> None:
    rates = UserRates(Rate(per_s=1.0, burst=1))
    assert rates.spend_one(1, 0.0)
    assert not rates.spend_one(1, 0.0)
    assert rates.spend_one(2, 0.0)


@given(st.lists(st.floats(0, 3), max_size=50), st.floats(0.1, 10), st.integers(1, 10))
def test_no_user_ever_gets_more_than_burst_and_rate(
    pauses: list[float], per_s: float, burst: int
) -> None:
    rates, now_s, taken = UserRates(Rate(per_s, burst)), 0.0, 0
    for pause in pauses:
        now_s += pause
        taken += rates.spend_one(7, now_s)
    assert taken <= burst + per_s * now_s + 1e-6


def test_a_clock_that_goes_back_gives_nobody_anything() -> None:
    rates = UserRates(Rate(per_s=1.0, burst=1))
    assert rates.spend_one(1, 100.0)
    assert not rates.spend_one(1, 0.0)
    assert rates.spend_one(1, 1.0)


def test_zero_is_no_limit() -> None:
    rates = UserRates(Rate(per_s=0.0, burst=0.0))
    assert all(rates.spend_one(1, 0.0) for _ in range(1000))
    assert rates.overdraw(1, 0.0, 1e9) == 0.0


def test_who_took_more_than_is_left_waits_until_it_is_back() -> None:
    rates = UserRates(Rate(per_s=10.0, burst=5))
    assert rates.overdraw(1, 0.0, 5) == 0.0
    assert rates.overdraw(1, 0.0, 5) == 0.5


def test_user_numbers_without_end_are_one_user() -> None:
    rates = UserRates(Rate(per_s=1.0, burst=1))
    assert sum(rates.spend_one(100_000 + number, 0.0) for number in range(65_536)) == USERS_MAX + 1
    # Whoever paused is told apart again.
    assert rates.spend_one(1000, 10.0)


def test_the_counts_of_refusals_are_bounded() -> None:
    refusals = UserRefusals(_Clock())
    for user in range(10 * USERS_MAX):
        refusals.count(Quota.JOBS, user)
    assert len(refusals.counts) == USERS_MAX + 1
    assert refusals.counts[OTHER_USERS, Quota.JOBS] == 9 * USERS_MAX
    assert refusals.by_name()[0, "jobs"] == 1


def test_a_user_is_limited_for_a_minute_after_its_last_refusal() -> None:
    clock = _Clock()
    refusals = UserRefusals(clock)
    refusals.count(Quota.NEW_JOBS, _NOBODY)
    refusals.count(Quota.CONNECTION_RATE, _NOBODY)
    clock.now_s += 59
    assert refusals.limited_now() == {
        _NOBODY: {"jobs.connections_per_user_per_s": 1, "jobs.new_jobs_per_user_per_min": 1}
    }
    clock.now_s += 2
    assert refusals.limited_now() == {}


def test_who_has_too_many_connections_is_told_the_key_and_has_a_place_when_one_ends() -> None:
    quota = _quota(_Clock(), at_once=2)
    assert not quota.enter(_NOBODY)
    assert not quota.enter(_NOBODY)
    assert "jobs.connections_per_user_max" in quota.enter(_NOBODY)
    assert not quota.enter(0)
    quota.leave(_NOBODY)
    assert not quota.enter(_NOBODY)
    assert dict(quota.open_connections) == {_NOBODY: 2, 0: 1}


def test_who_connects_too_often_is_told_the_key() -> None:
    clock = _Clock()
    quota = _quota(clock, per_s=8.0)
    refused = 0
    for _ in range(100):
        if reason := quota.enter(_NOBODY):
            assert "jobs.connections_per_user_per_s" in reason
            refused += 1
        else:
            quota.leave(_NOBODY)
    assert refused == 100 - 8 * BURST_S
    assert not quota.open_connections


def test_a_user_begins_jobs_at_its_rate_and_has_so_many() -> None:
    clock = _Clock()
    refusals = UserRefusals(clock)
    quota = JobQuota(JobLimit(at_once=3, per_min=180), refusals, clock)
    assert "jobs.jobs_per_user_max" in quota.refusal(_NOBODY, 3)
    assert not any(quota.refusal(_NOBODY, 0) for _ in range(60))
    assert "jobs.new_jobs_per_user_per_min" in quota.refusal(_NOBODY, 0)
    clock.now_s += 0.5
    assert not quota.refusal(_NOBODY, 0)
    assert refusals.by_name() == {(_NOBODY, "jobs"): 1, (_NOBODY, "new_jobs"): 1}
