"""Message memory: how many bytes of long messages the agent holds at once, in fair shares."""

import asyncio
import mmap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass

from everstep_common.frames import FRAME_BYTES_MAX

# Messages up to this size wait for no turn (a Join with a long environment): thousands of them at
# once still fit in memory.
SMALL_BYTES_MAX = 256 * 1024
_CLEARED_BYTES = 64 * 1024
# Room for the largest messages of two owners at once: one who stops sending in the middle of a
# message holds up nobody else.
MESSAGE_MEMORY_BYTES_MIN = 2 * FRAME_BYTES_MAX
# And for those of two jobs of one of them.
MESSAGE_MEMORY_BYTES = 3 * FRAME_BYTES_MAX
# About how long a value is written at most, and how many of them are surely a short message.
_VALUE_BYTES = 256
# How many owners' last turns are remembered: more than a node has jobs at once.
_OWNERS_MAX = 1000
_SHORT_WEIGHT = SMALL_BYTES_MAX // (2 * _VALUE_BYTES)


def buffer_for(size_bytes: int) -> memoryview:
    """Return memory for a message that comes.

    What grew as it comes would be copied again and again, 26 MiB at once; and cleared at once it
    would hold the event loop for as long. Who only says that much will come is given no memory.
    """
    if size_bytes <= _CLEARED_BYTES:
        return memoryview(bytearray(size_bytes))
    return memoryview(mmap.mmap(-1, size_bytes))


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """One long message: whose it is, and its size."""

    owner: str
    size_bytes: int


def memory_owner(uid: int, job: str) -> str:
    """Return whose shares a message takes: its job's, and its user's."""
    return f"{uid}/{job}"


def _user_of(owner: str) -> str:
    return owner.partition("/")[0]


class FairShares:
    """Shares of the owners of long messages, and whose message is next in memory. Pure."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        # The longest message of another user always has room beside those of one.
        self._user_bytes_max = most = max(bytes_max // 2, bytes_max - FRAME_BYTES_MAX)
        # So has that of another of its jobs, where there is room for two.
        self._job_bytes_max = max(most // 2, min(most, FRAME_BYTES_MAX))
        self._held: Counter[str] = Counter()
        self._held_by_user: Counter[str] = Counter()
        # The number of each owner's last turn, in order.
        self._last_turns: dict[str, int] = {}
        self._turns = 0

    @property
    def held_bytes(self) -> int:
        """Return how much is given out."""
        return self._held.total()

    def next_admitted(self, waiting: Sequence[LeaseRequest]) -> int | None:
        """Return the place in the queue of whose turn it is, or None while nobody can be let in.

        The user who has the least comes first, and of its jobs the one that has; of equals the one
        whose last turn is longest ago, however many of another's have queued before; and no smaller
        message overtakes his: it would wait for ever. Nobody gets all, see the constructor.
        """
        may = [place for place, request in enumerate(waiting) if self._may_have(request)]
        if not may:
            return None
        first = min(may, key=lambda place: self._priority(waiting[place].owner))
        fits = self.held_bytes + waiting[first].size_bytes <= self._bytes_max
        return first if fits else None

    def grant(self, request: LeaseRequest) -> None:
        """Give room to a message."""
        self._held[request.owner] += request.size_bytes
        self._held_by_user[_user_of(request.owner)] += request.size_bytes
        self._turns += 1
        self._last_turns.pop(request.owner, None)
        self._last_turns[request.owner] = self._turns
        if len(self._last_turns) > _OWNERS_MAX:
            del self._last_turns[next(iter(self._last_turns))]

    def release(self, owner: str, size_bytes: int) -> None:
        """So much of an owner's is not held any more."""
        self._held[owner] -= size_bytes
        if not self._held[owner]:
            del self._held[owner]
        user = _user_of(owner)
        self._held_by_user[user] -= size_bytes
        if not self._held_by_user[user]:
            del self._held_by_user[user]

    def _may_have(self, request: LeaseRequest) -> bool:
        job = self._held[request.owner] + request.size_bytes
        user = self._held_by_user[_user_of(request.owner)] + request.size_bytes
        return job <= self._job_bytes_max and user <= self._user_bytes_max

    def _priority(self, owner: str) -> tuple[int, int, int]:
        held = self._held_by_user[_user_of(owner)]
        return held, self._held[owner], self._last_turns.get(owner, 0)


class MemoryLease:
    """One message's room, until ``end``."""

    def __init__(self, give_back: Callable[[int], None], size_bytes: int) -> None:
        self._give_back = give_back
        self._size_bytes = size_bytes

    def shrink(self, size_bytes: int) -> None:
        """The message turned out to be no larger than this."""
        over, self._size_bytes = self._size_bytes - size_bytes, size_bytes
        self._give_back(over)

    def release(self) -> None:
        """Give the room to others; a second time is nothing."""
        self.shrink(0)


def no_lease() -> MemoryLease:
    """Return what a message has that needs none."""
    return MemoryLease(lambda _: None, 0)


class MessageMemory:
    """The room of one direction; who finds none waits for his turn. Event loop only.

    ``patience_s``: how long a message may take to come, or to be taken, once it has its turn.
    """

    def __init__(self, bytes_max: int, patience_s: float) -> None:
        self.timeout_s = patience_s
        self._fair_shares = FairShares(bytes_max)
        self._waiting: list[tuple[LeaseRequest, asyncio.Future[None]]] = []

    @property
    def held_bytes(self) -> int:
        """Return how much is given out."""
        return self._fair_shares.held_bytes

    @property
    def waiting(self) -> int:
        """Return how many messages wait for their turn."""
        return len(self._waiting)

    async def acquire(self, owner: str, size_bytes: int) -> MemoryLease:
        """Return when there is room for a message."""
        if size_bytes <= SMALL_BYTES_MAX:
            return no_lease()
        request = LeaseRequest(owner, size_bytes)
        place = (request, asyncio.get_running_loop().create_future())
        self._waiting.append(place)
        self._admit_waiting()
        try:
            await place[1]
        except asyncio.CancelledError:
            if place in self._waiting:
                self._waiting.remove(place)
            else:
                self._fair_shares.release(owner, size_bytes)
            self._admit_waiting()
            raise
        return MemoryLease(lambda count: self._release(owner, count), size_bytes)

    def _release(self, owner: str, size_bytes: int) -> None:
        if size_bytes:
            self._fair_shares.release(owner, size_bytes)
            self._admit_waiting()

    def _admit_waiting(self) -> None:
        while (
            place := self._fair_shares.next_admitted([request for request, _ in self._waiting])
        ) is not None:
            request, entered = self._waiting.pop(place)
            self._fair_shares.grant(request)
            # A waiter that was cancelled in the same turn of the loop returns the memory itself.
            if not entered.done():
                entered.set_result(None)


@dataclass(frozen=True, slots=True)
class MessageMemories:
    """The agent's room for long messages, each way: no answer waits behind what waits for it."""

    incoming: MessageMemory
    outgoing: MessageMemory


def message_memories(bytes_max: int, patience_s: float) -> MessageMemories:
    """Return room for so many bytes each way."""
    return MessageMemories(
        MessageMemory(bytes_max, patience_s), MessageMemory(bytes_max, patience_s)
    )


def may_be_long(message: object) -> bool:
    """Return whether a message may be one that needs a turn; cheap, and on the safe side."""
    return _weight(message) > _SHORT_WEIGHT


def _weight(value: object) -> int:
    """Return about how many values are written for this one; long texts count as more."""
    if isinstance(value, str | bytes):
        return 1 + len(value) // _VALUE_BYTES
    if isinstance(value, tuple):
        return len(value) if len(value) > _SHORT_WEIGHT else sum(map(_weight, value))
    if is_dataclass(value):
        return sum(_weight(getattr(value, one.name)) for one in fields(value))
    return 1
