"""Free port: a TCP port for the rendezvous, held until rank 0 needs it."""

import socket


class FreePort:
    """Port that is bound without listening, so that nobody else is given it meanwhile.

    It is another than ``before``: whatever is left of that rendezvous finds nobody there.
    """

    def __init__(self, before: int = 0, holder: socket.socket | None = None) -> None:
        """``holder`` is bound already, by whoever this process was before."""
        self._holder = holder or _bound()
        if before and self._holder.getsockname()[1] == before:
            with self._holder:  # closed when the kernel has had to give another one
                self._holder = _bound()
        self.number: int = self._holder.getsockname()[1]

    @property
    def descriptor(self) -> int:
        """Of what holds it; -1 when nothing does any more."""
        return self._holder.fileno()

    def listen(self) -> int:
        """Listen, and hand the socket over as a descriptor: nobody can come in between."""
        self._holder.listen()
        return self._holder.detach()

    def release(self) -> None:
        """Let rank 0 have it."""
        self._holder.close()


def _bound() -> socket.socket:
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    holder.bind(("", 0))
    return holder
