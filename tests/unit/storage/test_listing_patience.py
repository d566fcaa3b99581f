"""How long a job's storage has for its list of steps."""

from everstep_agent.storage.job_storage import ListingPatience


def test_each_listing_that_begins_anew_has_twice_as_long_up_to_the_longest() -> None:
    patience, limits = ListingPatience(10.0, 60.0), []
    for _ in range(5):
        limits.append(patience.limit_s)
        patience.exceed()
    assert limits == [10.0, 20.0, 40.0, 60.0, 60.0]


def test_one_that_came_in_time_has_the_next_begin_with_the_first_limit() -> None:
    patience = ListingPatience(10.0, 60.0)
    patience.exceed()
    patience.reset()
    assert patience.limit_s == 10.0


def test_a_first_limit_above_the_longest_stays() -> None:
    patience = ListingPatience(90.0, 60.0)
    patience.exceed()
    assert patience.limit_s == 90.0
