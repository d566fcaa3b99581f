"""Fair turns: how much of one turn of the event loop each user's messages get.

A loop serves whatever is ready, and a connection whose other end sends as fast as it is read is
always ready. So each message takes a turn: a user has a few in each turn of the loop, and the rest
of its messages wait until all others have had theirs. While some wait for long, the loop pauses as
well: threads that hash and copy get the interpreter only when the loop lets go of it.
"""

import asyncio
from collections import Counter, deque
from contextvars import ContextVar
from weakref import WeakKeyDictionary

# Messages of one user in one turn of the loop. One is handled within 0.03 to 0.3 ms, so another
# user's message waits about a millisecond for those of a user who floods the agent.
_TURNS_MAX = 4
# Bytes of messages that count as one turn: decoding them takes about as long as a short message.
_TURN_BYTES = 8 * 1024
# So many turns of the loop on end in which messages waited are a flood: the Begin, Commit and
# Progress of 64 ranks that save at once are through before.
_CALM_TURNS = 64
# While there is one, each user has so many messages in a pause: about 6,000 a second, twice as many
# as 64 ranks send that make ten steps a second.
_TURNS_IN_PAUSE = 8
_PAUSE_S = 0.001
# The most turns that one message counts as: a longer one is read and decoded in slices.
_WEIGHT_MAX = 64

# User that the current task serves, as do the tasks that it makes; -1: the agent's own work.
served_user: ContextVar[int] = ContextVar("served_user", default=-1)


class FairTurns:
    """Turns of the users on one event loop."""

    def __init__(self) -> None:
        self._taken: Counter[int] = Counter()
        self._waiting: dict[int, deque[asyncio.Future[None]]] = {}
        self._renewed = True
        # Turns of the loop on end in which messages have waited.
        self._crowded = 0

    async def wait_turn(self, user: int, size_bytes: int = 0) -> None:
        """Return when a message of a user, of so many bytes, may be read."""
        weight = min(1 + size_bytes // _TURN_BYTES, _WEIGHT_MAX)
        if user not in self._waiting and self._taken[user] < self._turns_max:
            self._taken[user] += weight
            self._renew_soon()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(turn)
        self._renew_soon()
        await turn
        self._taken[user] += weight - 1

    @property
    def waiting(self) -> int:
        """Return how many messages wait for a turn."""
        return sum(map(len, self._waiting.values()))

    @property
    def _turns_max(self) -> int:
        return _TURNS_IN_PAUSE if self._crowded > _CALM_TURNS else _TURNS_MAX

    def _renew_soon(self) -> None:
        if not self._renewed:
            return
        self._renewed = False
        loop = asyncio.get_running_loop()
        if self._crowded > _CALM_TURNS:
            loop.call_later(_PAUSE_S, self._renew)
        else:
            loop.call_soon(self._renew)

    def _renew(self) -> None:
        """A turn of the loop is over: each user has its share of the next one."""
        self._renewed = True
        self._crowded = self._crowded + 1 if self._waiting else 0
        # What took more than its share, a long message, has less of those that follow.
        most = self._turns_max
        self._taken = Counter(
            {user: left for user, taken in self._taken.items() if (left := taken - most) > 0}
        )
        for user in list(self._waiting):
            self._admit(user)
        if self._waiting or self._taken:
            self._renew_soon()

    def _admit(self, user: int) -> None:
        turns = self._waiting[user]
        while turns and self._taken[user] < self._turns_max:
            turn = turns.popleft()
            if not turn.done():  # its connection has not ended meanwhile
                self._taken[user] += 1
                turn.set_result(None)
        if not turns:
            del self._waiting[user]


# They belong to the loop, as its clock does: no caller has to pass them on.
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, FairTurns] = WeakKeyDictionary()


def fair_turns() -> FairTurns:
    """Return the turns of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _turns:
        _turns[loop] = FairTurns()
    return _turns[loop]
