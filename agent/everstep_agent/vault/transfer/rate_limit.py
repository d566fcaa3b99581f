"""Rate limit: keeps all transfers of a node together below one rate."""

from collections.abc import Callable
from threading import Event, Lock

_SECOND_NS = 1_000_000_000
# Pieces of this part of a second let 64 streams share any rate and still move each every second,
# within the two sizes below: smaller ones cost overhead, larger ones gain nothing.
_PIECES_PER_S = 64
_PIECE_BYTES_MIN = 16 * 1024
_PIECE_BYTES_MAX = 1024 * 1024
# What may be sent at once after a pause; larger than a piece, or the rate would not be reached.
_BURST_NS = _SECOND_NS // 10


class TokenBucket:
    """Says how long to wait before so many bytes may go. Pure: the time is an argument."""

    def __init__(self, bytes_per_s: int, now_ns: int) -> None:
        self._bytes_per_s = bytes_per_s
        # The moment at which all that was sent so far fits the rate.
        self._paid_ns = now_ns

    def reserve(self, count: int, now_ns: int) -> int:
        """Take the bytes, and return how many nanoseconds to wait before they are sent.

        Whoever comes later waits behind: nobody is starved.
        """
        start_ns = max(self._paid_ns, now_ns - _BURST_NS)
        self._paid_ns = start_ns + count * _SECOND_NS // self._bytes_per_s
        return max(0, self._paid_ns - now_ns)


class RateLimiter:
    """The node's limit, for the threads that send. ``bytes_per_s_max`` 0 is no limit."""

    def __init__(self, bytes_per_s_max: int, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._bucket = TokenBucket(bytes_per_s_max, now_ns()) if bytes_per_s_max else None
        self._lock = Lock()
        # Bytes to ask for at once; 0: as many as there are.
        self.piece_bytes = 0
        if bytes_per_s_max:
            piece = bytes_per_s_max // _PIECES_PER_S
            self.piece_bytes = min(max(piece, _PIECE_BYTES_MIN), _PIECE_BYTES_MAX)

    def wait_for(self, count: int) -> None:
        """Return when so many bytes may be sent."""
        if self._bucket is None:
            return
        with self._lock:
            wait_ns = self._bucket.reserve(count, self._now_ns())
        if wait_ns:
            Event().wait(wait_ns / _SECOND_NS)
