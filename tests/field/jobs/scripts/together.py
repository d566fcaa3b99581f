"""Sums over the processes of a job, in the order of their ranks, by sockets alone.

What an unchanged script has instead of a framework's collectives; nothing of Everstep is in it.
"""

import os
import socket
import struct
import time

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# As long as a framework's own timeout would be here: a peer that hangs ends this process then.
DEADLINE_S = 180.0
_HELLO = struct.Struct(">I")


class Together:
    """The processes that the environment names, joined in a star around rank 0."""

    def __init__(self) -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._peers: list[socket.socket] = []
        if self.size > 1:
            address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
            self._peers = self._listen(address) if self.rank == 0 else [self._connect(address)]

    def sum(self, mine: Array) -> Array:
        """Return the sum of everybody's arrays, added one by one in rank order."""
        if self.rank != 0:
            self._peers[0].sendall(mine.tobytes())
            return self._receive(self._peers[0], mine.shape)
        total = mine.copy()
        for peer in self._peers:
            total += self._receive(peer, mine.shape)
        for peer in self._peers:
            peer.sendall(total.tobytes())
        return total

    def _listen(self, address: tuple[str, int]) -> list[socket.socket]:
        peers: dict[int, socket.socket] = {}
        with socket.create_server(("", address[1]), backlog=self.size) as server:
            server.settimeout(DEADLINE_S)
            while len(peers) < self.size - 1:
                peer = server.accept()[0]
                peer.settimeout(DEADLINE_S)
                peers[_HELLO.unpack(peer.recv(_HELLO.size, socket.MSG_WAITALL))[0]] = peer
        return [peers[rank] for rank in sorted(peers)]

    def _connect(self, address: tuple[str, int]) -> socket.socket:
        give_up_at = time.monotonic() + DEADLINE_S
        while True:  # rank 0 may not listen yet
            try:
                peer = socket.create_connection(address, timeout=DEADLINE_S)
                break
            except OSError:
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(0.05)
        peer.sendall(_HELLO.pack(self.rank))
        return peer

    def _receive(self, peer: socket.socket, shape: tuple[int, ...]) -> Array:
        data = bytearray(int(np.prod(shape)) * 8)
        view = memoryview(data)
        while view:
            count = peer.recv_into(view)
            if count == 0:
                raise ConnectionError("a peer is gone")
            view = view[count:]
        return np.frombuffer(data, dtype=np.float64).reshape(shape)
