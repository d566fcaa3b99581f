"""Limits of enrolment: who is heard after refusals, and which refusals are written down."""

from dataclasses import replace

from everstep_controller.core.events import EnrolmentRefused
from everstep_controller.enrolment.attempt_limit import AttemptLimit
from everstep_controller.enrolment.refusals import Refusals

_REFUSED = EnrolmentRefused(what="enrolment", node="gpu-1", address="10.0.0.1", reason="why")


def heard_of(limit: AttemptLimit, address: str, attempts: int, at_s: float) -> int:
    """Return how many of so many wrong tokens in a moment are heard."""
    heard = 0
    for _ in range(attempts):
        if limit.hears(address, at_s, known=False):
            heard += 1
            limit.note_refused(address, at_s, known=False)
    return heard


def test_an_address_is_refused_twenty_times_and_then_once_a_second() -> None:
    limit = AttemptLimit()
    assert heard_of(limit, "10.0.0.1", 1000, at_s=0) == 20
    assert [heard_of(limit, "10.0.0.1", 1000, at_s=float(second)) for second in (1, 2, 5)] == [
        1, 1, 3,
    ]  # fmt: skip
    assert limit.unheard == 4000 - 25


def test_whoever_is_not_refused_is_always_heard() -> None:
    limit = AttemptLimit()
    assert all(limit.hears("10.0.0.1", 0.0, known=False) for _ in range(100_000))


def test_a_flood_from_many_addresses_leaves_known_nodes_their_share() -> None:
    limit, heard = AttemptLimit(), 0
    for second in range(60):
        heard += sum(
            heard_of(limit, f"10.{second}.{number // 250}.{number % 250}", 1, float(second))
            for number in range(1000)
        )
        assert limit.hears("192.168.0.7", float(second), known=True)
        assert not limit.hears("192.168.0.8", float(second), known=False)
    assert heard == 200 + 59 * 20


def test_a_node_with_an_old_token_is_bounded_by_its_own_address_alone() -> None:
    limit = AttemptLimit()
    for _ in range(300):
        limit.note_refused("10.0.0.1", 0.0, known=True)
    assert not limit.hears("10.0.0.1", 0.0, known=True)
    assert limit.hears("10.0.0.2", 0.0, known=False)


def test_addresses_are_kept_in_a_bounded_table() -> None:
    limit = AttemptLimit()
    for number in range(30_000):
        limit.note_refused(str(number), 0.0, known=True)
    assert len(limit._addresses) == 10_000


def test_alike_refusals_are_told_at_once_and_then_with_their_number() -> None:
    refusals = Refusals()
    told = [refusals.note(_REFUSED, second / 10) for second in range(100)]
    assert told == [_REFUSED, *[None] * 99]
    assert list(refusals.due(59.0)) == []
    assert list(refusals.due(60.0)) == [replace(_REFUSED, count=99)]
    assert list(refusals.due(200.0)) == []
    assert refusals.note(_REFUSED, 200.0) == _REFUSED


def test_a_flood_from_many_addresses_writes_few_lines() -> None:
    refusals, lines = Refusals(), list[EnrolmentRefused]()
    for number in range(10_000):
        told = refusals.note(replace(_REFUSED, address=str(number)), number / 1000)
        lines += [told] if told else []
    lines += refusals.due(70.0)
    assert len(lines) == 22
    assert sum(one.count for one in lines) == 10_000
    assert {one.address for one in lines[20:]} == {"many addresses"}
