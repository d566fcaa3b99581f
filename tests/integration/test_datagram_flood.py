"""Datagrams without end at an agent's liveness port: a part of each turn of the loop, no more."""

import asyncio
import socket

from everstep_agent.peer_socket import PeerSocket
from integration.vault_world import TIMEOUT_S, lived

_FLOOD = 150


class _Asker:
    """Whoever asked a peer."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()

    def answered(self) -> None:
        self.heard.set()

    def unreachable(self, *, by_network: bool) -> None:
        raise AssertionError(f"unreachable, by the network: {by_network}")


@lived
async def test_a_question_behind_a_flood_is_answered_and_the_flood_ends_no_turn() -> None:
    peer = await PeerSocket.open("node-2", "127.0.0.1", 0)
    own = await PeerSocket.open("node-1", "127.0.0.1", 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for _ in range(_FLOOD):
            stranger.sendto(b"\xff" * 24, ("127.0.0.1", peer.port))
        # What lies there is more than one turn of the loop reads.
        assert not peer.drain()
        asker = _Asker()
        assert own.ask("node-2", ("127.0.0.1", peer.port), asker).sent
        async with asyncio.timeout(TIMEOUT_S):
            await asker.heard.wait()
        assert peer.drain()
    for one in (own, peer):
        one.close()
