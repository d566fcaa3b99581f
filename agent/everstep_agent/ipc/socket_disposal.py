"""Socket disposal: closes sockets in threads, where a close may take as long as a stranger likes.

Descriptors that lie unread in a Unix socket are closed with it, and the last close of a TCP socket
with SO_LINGER waits until its peer has read everything, or for as long as its owner has set. A
signal ends that wait at once (tcp(7), sk_stream_wait_close in the kernel), so nothing piles up.
"""

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections import Counter, deque
from weakref import WeakKeyDictionary

logger = logging.getLogger(__name__)

_THREADS_MAX = 4
# How long a close may wait before a signal ends its wait.
_CLOSE_S = 0.01
# The most sockets that wait for their close while others are let in: each is a descriptor, of which
# the agent has 65,536 (LimitNOFILE of everstep-agent.service).
_WAITING_MAX = 1024
_ROOM_POLL_S = 0.02
_LOG_INTERVAL_S = 60.0
# Users that are counted by themselves.
_USERS_MAX = 64
# What counts for all further users.
OTHER_USERS = -1
# Its default is that nothing happens, so that no other program sends it to stop one.
_WAKE = signal.SIGURG


class SocketDisposal:
    """Threads that close sockets, and the count of connections that brought descriptors."""

    def __init__(self, waiting_max: int = _WAITING_MAX) -> None:
        self._waiting_max = waiting_max
        # Connections that were ended because descriptors came with them, by user.
        self.refused: Counter[int] = Counter()
        # When each text was logged last.
        self._warned_s: dict[str, float] = {}
        self._lock = threading.Lock()
        self._waiting: deque[socket.socket] = deque()
        self._threads = 0
        # Threads that are in a close now.
        self._closing: set[int] = set()
        self._waking = False
        with contextlib.suppress(ValueError):  # not the main thread: then a close takes its time
            if signal.getsignal(_WAKE) in (signal.SIG_DFL, signal.SIG_IGN):
                signal.signal(_WAKE, lambda *_: None)

    @property
    def waiting(self) -> int:
        """Return how many sockets are still to be closed."""
        return len(self._waiting) + len(self._closing)

    async def room(self) -> None:
        """Wait while so many sockets are to be closed that the agent would run out of them."""
        while self.waiting >= self._waiting_max:
            self._warn("nobody is let in: %d sockets wait for their close", self.waiting)
            await asyncio.sleep(_ROOM_POLL_S)

    def refuse(self, connection: socket.socket, user: int) -> None:
        """Close a connection that brought descriptors, and count it."""
        if user not in self.refused and len(self.refused) >= _USERS_MAX:
            user = OTHER_USERS
        self.refused[user] += 1
        self._warn(
            f"user {user} passed descriptors to the agent, which takes none: connections ended so "
            "far: %d",
            self.refused[user],
        )
        self.close(connection)

    def close(self, connection: socket.socket) -> None:
        """Close a socket in a thread."""
        with self._lock:
            self._waiting.append(connection)
            begins = self._threads < _THREADS_MAX
            self._threads += begins
        if begins:
            threading.Thread(target=self._work, name="socket-disposal", daemon=True).start()
        if not self._waking:
            self._waking = True
            asyncio.get_running_loop().call_later(_CLOSE_S, self._wake, frozenset())

    def _work(self) -> None:
        own = threading.get_ident()
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                connection = self._waiting.popleft()
                self._closing.add(own)
            with contextlib.suppress(OSError):
                connection.close()
            with self._lock:
                self._closing.discard(own)

    def _wake(self, before: frozenset[int]) -> None:
        """End the waits of threads that were closing already when this was called last."""
        with self._lock:
            # Only under the lock is it sure that they still live.
            for thread in self._closing & before:
                signal.pthread_kill(thread, _WAKE)
            closing = frozenset(self._closing)
            self._waking = bool(closing or self._waiting)
        if self._waking:
            asyncio.get_running_loop().call_later(_CLOSE_S, self._wake, closing)

    def _warn(self, text: str, count: int) -> None:
        """Log a line, but not one that was logged within a minute."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._warned_s.get(text, float("-inf")) >= _LOG_INTERVAL_S:
            self._warned_s[text] = now_s
            logger.warning(text, count)


# It belongs to the loop, as its clock does: no caller has to pass it on.
_disposals: WeakKeyDictionary[asyncio.AbstractEventLoop, SocketDisposal] = WeakKeyDictionary()


def socket_disposal() -> SocketDisposal:
    """Return the disposal of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _disposals:
        _disposals[loop] = SocketDisposal()
    return _disposals[loop]
