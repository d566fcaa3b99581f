"""How often the collectives of a job are looked at by themselves: once, and while it is slower."""

from everstep_controller.watches.collective_watch import CollectivePace

_S = 10**9
_MINUTE = 60 * _S


def test_a_generation_is_looked_at_once_after_its_first_minute() -> None:
    pace = CollectivePace()
    assert not pace.is_due(59 * _S, 100 * _MINUTE, _S)
    assert pace.is_due(60 * _S, 100 * _MINUTE, _S)
    pace.tried_ns, pace.has_seen = 100 * _MINUTE, True
    for minute in range(101, 200):
        assert not pace.is_due(minute * _MINUTE, minute * _MINUTE, _S + minute)


def test_a_job_that_has_become_slower_is_looked_at_every_ten_minutes() -> None:
    pace = CollectivePace(tried_ns=_MINUTE, has_seen=True, fastest_ns=_S)
    due = []
    for minute in range(1, 40):
        if pace.is_due(minute * _MINUTE, minute * _MINUTE, int(1.2 * _S)):
            due.append(minute)
            pace.tried_ns = minute * _MINUTE
    assert due == [11, 21, 31]
    assert not pace.is_due(60 * _MINUTE, 60 * _MINUTE, int(1.05 * _S))


def test_what_was_tried_in_vain_is_not_tried_again_at_once() -> None:
    pace = CollectivePace(tried_ns=_MINUTE)
    assert not pace.is_due(_MINUTE, 10 * _MINUTE, 0)
    assert pace.is_due(11 * _MINUTE, 11 * _MINUTE, 0)
