"""Shares of long messages in memory: of users, and of their jobs."""

from everstep_agent.ipc.message_memory import (
    MESSAGE_MEMORY_BYTES,
    MESSAGE_MEMORY_BYTES_MIN,
    FairShares,
    LeaseRequest,
    memory_owner,
)
from everstep_common.frames import FRAME_BYTES_MAX

_FLOOD, _OTHER = 65534, 1000


def _longest(uid: int, job: str) -> LeaseRequest:
    return LeaseRequest(memory_owner(uid, job), FRAME_BYTES_MAX)


def test_a_user_with_many_jobs_leaves_room_for_the_longest_message_of_another() -> None:
    for size in (MESSAGE_MEMORY_BYTES_MIN, MESSAGE_MEMORY_BYTES, 16 * FRAME_BYTES_MAX):
        shares = FairShares(size)
        waiting = [_longest(_FLOOD, f"job-{number}") for number in range(100)]
        while (place := shares.next_admitted(waiting)) is not None:
            shares.grant(waiting.pop(place))
        assert shares.held_bytes == size - FRAME_BYTES_MAX
        assert shares.next_admitted([*waiting, _longest(_OTHER, "train")]) == len(waiting)


def test_a_job_leaves_room_for_another_of_its_user_as_shipped() -> None:
    shares = FairShares(MESSAGE_MEMORY_BYTES)
    shares.grant(_longest(_OTHER, "first"))
    assert shares.next_admitted([_longest(_OTHER, "first")]) is None
    assert shares.next_admitted([_longest(_OTHER, "first"), _longest(_OTHER, "second")]) == 1


def test_the_user_who_has_the_least_comes_first() -> None:
    shares = FairShares(MESSAGE_MEMORY_BYTES)
    shares.grant(LeaseRequest(memory_owner(_FLOOD, "a"), 10))
    waiting = [LeaseRequest(memory_owner(_FLOOD, "b"), 10), _longest(_OTHER, "train")]
    assert shares.next_admitted(waiting) == 1
    shares.release(memory_owner(_FLOOD, "a"), 10)
    assert shares.held_bytes == 0
