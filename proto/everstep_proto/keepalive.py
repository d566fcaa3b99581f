"""Keepalive: gRPC's options by which an end notices that the other's machine or process stands.

gRPC sends such a ping only on a connection on which nothing has come for a while. Threads of its
own answer it, so an event loop that hangs is not noticed by it.
"""

# After how many seconds without a word of the other end a client pings at the earliest: an agent
# that has another controller to go to.
SHORTEST_IDLE_S = 2.0


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


def permitted_pings() -> tuple[tuple[str, int], ...]:
    """Return the options of a server that bears the pings of its clients.

    Without them it ends the connection of one that pings twice within five minutes.
    """
    return (
        ("grpc.http2.min_ping_interval_without_data_ms", round(SHORTEST_IDLE_S * 500)),
        ("grpc.keepalive_permit_without_calls", 1),
    )
