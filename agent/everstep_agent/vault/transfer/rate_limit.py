"""Rate limit: keeps all transfers of a node together below one rate."""

from collections.abc import Callable
from threading import Event, Lock

from everstep_agent.quotas.token_bucket import Rate, TokenBucket

_SECOND_NS = 1_000_000_000
# Pieces of this part of a second let 64 streams share any rate and still move each every second,
# within the two sizes below: smaller ones cost overhead, larger ones gain nothing.
_PIECES_PER_S = 64
_PIECE_BYTES_MIN = 16 * 1024
_PIECE_BYTES_MAX = 1024 * 1024
# What may be sent at once after a pause; larger than a piece, or the rate would not be reached.
_BURST_S = 0.1


class RateLimiter:
    """The node's limit, for the threads that send. ``bytes_per_s_max`` 0 is no limit."""

    def __init__(self, bytes_per_s_max: int, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._bucket: TokenBucket | None = None
        self._lock = Lock()
        # Bytes to ask for at once; 0: as many as there are.
        self.piece_bytes = 0
        if bytes_per_s_max:
            rate = Rate(bytes_per_s_max, bytes_per_s_max * _BURST_S)
            self._bucket = TokenBucket(rate, now_ns() / _SECOND_NS)
            piece = bytes_per_s_max // _PIECES_PER_S
            self.piece_bytes = min(max(piece, _PIECE_BYTES_MIN), _PIECE_BYTES_MAX)

    def wait_for(self, count: int) -> None:
        """Return when so many bytes may be sent."""
        if self._bucket is None:
            return
        with self._lock:
            wait_s = self._bucket.overdraw(self._now_ns() / _SECOND_NS, count)
        if wait_s:
            Event().wait(wait_s)
