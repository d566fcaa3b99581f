"""A TCP port for the rendezvous, kept until rank 0 needs it."""

import socket


class FreePort:
    """Holds a port without listening, so that nobody else is given it meanwhile."""

    def __init__(self) -> None:
        self._holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._holder.bind(("", 0))
        self.number: int = self._holder.getsockname()[1]

    def release(self) -> None:
        """Let rank 0 have it."""
        self._holder.close()
