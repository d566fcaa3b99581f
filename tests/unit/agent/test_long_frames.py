"""Whose long message is read next, and that what is held never exceeds the room."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep_agent.ipc.message_memory import (
    SMALL_BYTES_MAX,
    FairShares,
    LeaseRequest,
    MemoryLease,
    MessageMemory,
    may_be_long,
)
from everstep_common.rank_messages import (
    DescribedPart,
    Entry,
    Restore,
    RestoredCopies,
    RestoredCopy,
)
from fakes.jumping_loop import simulate

MIB = 1024 * 1024


def test_the_owner_who_has_the_least_comes_first() -> None:
    shares = FairShares(8)
    shares.grant(LeaseRequest("a", 2))
    assert (
        shares.next_admitted([LeaseRequest("a", 1), LeaseRequest("b", 1), LeaseRequest("b", 2)])
        == 1
    )


def test_who_has_half_of_the_room_waits_and_others_pass() -> None:
    shares = FairShares(8)
    shares.grant(LeaseRequest("a", 4))
    assert shares.next_admitted([LeaseRequest("a", 1)]) is None
    assert shares.next_admitted([LeaseRequest("a", 1), LeaseRequest("b", 4)]) == 1


def test_no_small_message_overtakes_the_large_one_whose_turn_it_is() -> None:
    shares = FairShares(8)
    for owner in ("a", "b"):
        shares.grant(LeaseRequest(owner, 3))
    assert (
        shares.next_admitted([LeaseRequest("a", 1), LeaseRequest("c", 4), LeaseRequest("b", 1)])
        is None
    )


def test_two_owners_with_many_messages_do_not_keep_a_third_one_waiting() -> None:
    shares = FairShares(8)
    waiting = [LeaseRequest(owner, 4) for owner in "ababababab"]
    for owner in "ab":
        place = shares.next_admitted(waiting)
        assert place is not None
        assert waiting[place].owner == owner
        shares.grant(waiting.pop(place))
    waiting.append(LeaseRequest("c", 4))
    shares.release("a", 4)
    place = shares.next_admitted(waiting)
    assert place is not None
    assert waiting[place].owner == "c"


def test_who_has_had_a_turn_is_forgotten_some_time() -> None:
    shares = FairShares(8)
    for owner in ("early", *map(str, range(1000)), "late"):
        shares.grant(LeaseRequest(owner, 1))
        shares.release(owner, 1)
    assert shares.next_admitted([LeaseRequest("late", 1), LeaseRequest("early", 1)]) == 1
    assert shares.next_admitted([LeaseRequest("early", 1), LeaseRequest("new", 1)]) == 0


@settings(deadline=None)
@given(
    asked=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), max_size=20),
    data=st.data(),
)
def test_everybody_has_his_turn_and_the_room_is_never_exceeded(
    asked: list[tuple[str, int]], data: st.DataObject
) -> None:
    shares = FairShares(8)
    waiting = [LeaseRequest(*one) for one in asked]
    inside: list[LeaseRequest] = []
    while waiting or inside:
        while (place := shares.next_admitted(waiting)) is not None:
            inside.append(waiting.pop(place))
            shares.grant(inside[-1])
        assert shares.held_bytes == sum(one.size_bytes for one in inside) <= 8
        assert inside, "somebody waits, and nobody is inside"
        gone = inside.pop(data.draw(st.integers(0, len(inside) - 1)))
        shares.release(gone.owner, gone.size_bytes)
    assert shares.held_bytes == 0


def test_a_turn_that_ends_lets_the_next_one_in() -> None:
    async def scenario() -> None:
        room = MessageMemory(4 * MIB, patience_s=1)
        first = await room.acquire("a", 2 * MIB)
        second = asyncio.create_task(room.acquire("a", 2 * MIB))
        await asyncio.sleep(1)
        assert (room.held_bytes, room.waiting) == (2 * MIB, 1)
        first.release()
        first.release()
        (await second).release()
        assert (room.held_bytes, room.waiting) == (0, 0)

    simulate(scenario())


def test_what_is_smaller_than_it_could_have_been_leaves_room_to_others() -> None:
    async def scenario() -> None:
        room = MessageMemory(8 * MIB, patience_s=1)
        first = await room.acquire("a", 4 * MIB)
        first.shrink(MIB)
        second = await room.acquire("a", 3 * MIB)
        assert room.held_bytes == 4 * MIB
        second.release()
        assert room.held_bytes == MIB

    simulate(scenario())


def test_a_short_message_needs_no_turn() -> None:
    async def scenario() -> None:
        room = MessageMemory(4 * MIB, patience_s=1)
        await room.acquire("a", 2 * MIB)
        await room.acquire("a", SMALL_BYTES_MAX)
        assert room.held_bytes == 2 * MIB

    simulate(scenario())


@pytest.mark.parametrize("let_in", [False, True], ids=["it waits", "it was just let in"])
def test_who_waits_no_more_holds_nothing(let_in: bool) -> None:
    async def scenario() -> None:
        room = MessageMemory(4 * MIB, patience_s=1)
        turns = [await room.acquire("a", 2 * MIB), await room.acquire("b", 2 * MIB)]
        waits = asyncio.create_task(room.acquire("a", MIB))
        await asyncio.sleep(1)
        if let_in:
            _end(turns)
        waits.cancel()
        await asyncio.wait([waits])
        assert waits.cancelled()
        _end(turns)
        assert (room.held_bytes, room.waiting) == (0, 0)

    simulate(scenario())


def _end(turns: list[MemoryLease]) -> None:
    for turn in turns:
        turn.release()


def test_what_may_be_long_is_told_from_what_is_short() -> None:
    few, many = [tuple(Entry(f"w{i}", i, 1) for i in range(count)) for count in (8, 5000)]
    assert not may_be_long(DescribedPart(1, few, 0))
    assert may_be_long(DescribedPart(1, many, 0))
    assert may_be_long(RestoredCopies(1, (RestoredCopy(few, 1), RestoredCopy(many, 1)), 0, 0))
    assert may_be_long(DescribedPart(1, (Entry("w" * MIB, 0, 1),), 0))
    assert not may_be_long(Restore(("w",)))
