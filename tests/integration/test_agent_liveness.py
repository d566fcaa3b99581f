"""Liveness between agents over real UDP."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from everstep_agent.liveness import Liveness
from everstep_agent.peer_socket import name_tag
from everstep_common.orders import ConfirmPeer, PeerList, WatchedPeer
from everstep_proto.generated import fleet_pb2
from fakes.waits import eventually


@asynccontextmanager
async def _node(
    name: str, said: list[fleet_pb2.AgentMessage], *, running: bool = True
) -> AsyncIterator[tuple[Liveness, int]]:
    liveness = Liveness(name, said.append)
    port = await liveness.open("127.0.0.1", 0)
    task = asyncio.create_task(liveness.run())
    try:
        yield liveness, port
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _confirm(peer: str, port: int) -> ConfirmPeer:
    return ConfirmPeer("c-1", WatchedPeer(peer, f"127.0.0.1:{port}"))


async def _until(said: list[fleet_pb2.AgentMessage], count: int) -> float:
    """Wait for so many messages; return for how long this loop itself stood still meanwhile."""
    loop, still_s = asyncio.get_running_loop(), 0.0
    looked_s = loop.time()

    def come() -> bool:
        nonlocal looked_s, still_s
        still_s += max(0.0, loop.time() - looked_s - 0.1)
        looked_s = loop.time()
        return len(said) >= count

    await eventually(come)
    return still_s


def test_a_living_peer_is_confirmed_and_another_name_at_its_address_is_not() -> None:
    async def scenario() -> None:
        said: list[fleet_pb2.AgentMessage] = []
        async with _node("a", said) as (a, _), _node("b", []) as (_, port):
            a.confirm(_confirm("b", port))
            a.confirm(_confirm("c", port))
            await _until(said, 2)
        assert {(m.evidence.peer, m.evidence.udp) for m in said} == {("b", True), ("c", False)}

    asyncio.run(scenario())


def test_a_peer_that_dies_is_reported_silent_within_five_seconds_and_heard_again() -> None:
    async def scenario() -> None:
        said: list[fleet_pb2.AgentMessage] = []
        async with _node("a", said) as (a, _):
            async with _node("b", []) as (_, port):
                address = f"127.0.0.1:{port}"
                a.watch(PeerList((WatchedPeer("b", address),)))
                await asyncio.sleep(1.2)  # a peer is asked every second
                assert said == []
            loop = asyncio.get_running_loop()
            died_at = loop.time()
            still_s = await _until(said, 1)
            assert said[0].peer.silent
            # A node that stood still suspects nobody for it: it loses that time, and a probe.
            assert loop.time() - died_at < 5 + 2 * still_s
            again = Liveness("b", lambda _: None)
            await again.open("127.0.0.1", port)
            task = asyncio.create_task(again.run())
            await _until(said, 2)
            assert not said[1].peer.silent
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    asyncio.run(scenario())


def test_only_well_formed_questions_are_answered_and_never_with_more_bytes() -> None:
    async def scenario() -> None:
        async with _node("a", []) as (_, port):
            loop = asyncio.get_running_loop()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as requester:
                requester.setblocking(False)
                requester.connect(("127.0.0.1", port))
                question = b"ESP1ask\0" + name_tag("a") + b"12345678"
                for bad in (b"", b"x" * 24, question[:-1], question + b"x", b"y" * 1400):
                    await loop.sock_sendall(requester, bad)
                await loop.sock_sendall(requester, question)
                answer = await asyncio.wait_for(loop.sock_recv(requester, 2048), 20)
                assert answer == b"ESP1answ" + name_tag("a") + b"12345678"

    asyncio.run(scenario())


def test_a_peer_whose_address_is_a_name_is_asked_as_well() -> None:
    async def scenario() -> None:
        said: list[fleet_pb2.AgentMessage] = []
        async with _node("a", said) as (a, _), _node("b", []) as (_, port):
            known, unknown = f"localhost:{port}", "not an address"
            a.watch(PeerList((WatchedPeer("b", known), WatchedPeer("nowhere", unknown))))
            await _until(said, 1)
            assert (said[0].peer.peer, said[0].peer.silent) == ("nowhere", True)
            assert len(said) == 1

    asyncio.run(scenario())
