"""Messages of the controller that an agent cannot use: what it says of them, and how often."""

import pytest

from everstep_agent.orders import RejectedOrders, TermGate
from everstep_common.quantities import NUMBER_MAX
from everstep_common.reports import OrderRejected
from everstep_proto.record_codec import WireError

_MINUTE_NS = 60_000_000_000


def _unusable(kind: str = "vault", error: str = "no") -> OrderRejected:
    return OrderRejected(kind, "", "train", error, count=1)


def test_the_first_of_a_kind_is_told_at_once() -> None:
    rejected = RejectedOrders()
    assert rejected.note(_unusable(), 5) == _unusable()
    assert rejected.note(_unusable("order"), 6) == _unusable("order")


def test_what_comes_again_and_again_is_told_once_a_minute_with_its_number() -> None:
    rejected = RejectedOrders()
    rejected.note(_unusable(), 0)
    for number in range(1000):
        assert rejected.note(_unusable(error=f"{number}"), number) is None
    told = rejected.note(_unusable(error="last"), _MINUTE_NS)
    assert told == OrderRejected("vault", "", "train", "0", count=1001)
    assert rejected.note(_unusable(), _MINUTE_NS + 1) is None


def test_a_term_that_no_hello_could_say_is_refused_and_not_kept() -> None:
    kept: list[int] = []
    terms = TermGate(3, kept.append)
    with pytest.raises(WireError, match="a term of"):
        terms.admits(NUMBER_MAX + 1, "order x")
    assert (terms.highest, kept) == (3, [])
    assert terms.admits(NUMBER_MAX, "order x")
