"""Keepalive: gRPC's options by which an end notices that the other's machine or process stands.

gRPC sends such a ping only on a connection on which nothing has come for a while. Threads of its
own answer it, so an event loop that hangs is not noticed by it.
"""


def keepalive(idle_s: float, timeout_s: float) -> tuple[tuple[str, int], ...]:
    """Return the options to ping after ``idle_s`` without data, and to end after ``timeout_s``.

    All three go together: without the last one, a ping counts as lost only after its default of a
    minute, whatever ``keepalive_timeout_ms`` is (measured: 79 s with 20 s and 10 s).
    """
    return (
        ("grpc.keepalive_time_ms", round(idle_s * 1000)),
        ("grpc.keepalive_timeout_ms", round(timeout_s * 1000)),
        ("grpc.http2.ping_timeout_ms", round(timeout_s * 1000)),
    )
