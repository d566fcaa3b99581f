"""A port for servers that come and go during a test, which nobody else gets meanwhile."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """Yield a port of loopback where nobody listens, unless a server that the test starts.

    It stays bound: the kernel gives it to nobody who asks for any port, not even between two
    servers. They can bind it too, for it is not listened on and both sides reuse addresses.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])
