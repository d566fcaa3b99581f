"""What an agent says of a peer that it is asked about: real UDP, and a real port."""

import asyncio
import contextlib
import resource
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from everstep_agent.liveness import Liveness
from everstep_agent.peer_socket import name_tag
from everstep_common.orders import ConfirmPeer, WatchedPeer
from everstep_common.reports import PeerEvidence, TcpAnswer
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import from_wire
from fakes.waits import eventually

_SILENT_PORT = 9


@contextmanager
def _port(backlog: int = 128, host: str = "127.0.0.1") -> Iterator[socket.socket]:
    """Listen, and accept nothing."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind((host, 0))
        listener.listen(backlog)
        yield listener


@contextmanager
def _closed_port() -> Iterator[int]:
    """Yield a port on which nobody listens, for as long as it is needed."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


@asynccontextmanager
async def _agent(
    name: str, said: list[fleet_pb2.AgentMessage], host: str = "127.0.0.1"
) -> AsyncIterator[tuple[Liveness, int]]:
    liveness = Liveness(name, said.append)
    port = await liveness.open(host, 0)
    task = asyncio.create_task(liveness.run())
    try:
        yield liveness, port
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _evidence(
    asker: Liveness, said: list[fleet_pb2.AgentMessage], udp: str, bulk: str = ""
) -> PeerEvidence:
    """Have a node asked about its peer "b", and return what it says."""
    said.clear()
    asker.confirm(ConfirmPeer("c-1", WatchedPeer("b", udp), bulk))
    (first, *_) = await eventually(lambda: said)
    return from_wire(PeerEvidence, first.evidence)


def _told(udp_answers: bool, bulk: str) -> PeerEvidence:
    """Return what is said of a peer whose agent answers or not, with this bulk address."""

    async def scenario() -> PeerEvidence:
        said: list[fleet_pb2.AgentMessage] = []
        async with _agent("a", said) as (asker, _), _agent("b", []) as (_, port):
            udp = f"127.0.0.1:{port if udp_answers else _SILENT_PORT}"
            return await _evidence(asker, said, udp, bulk)

    return asyncio.run(scenario())


@pytest.mark.parametrize("udp", [True, False])
def test_a_port_that_listens_is_said_to_accept_whatever_the_agent_answers(udp: bool) -> None:
    with _port() as listener:
        told = _told(udp, f"127.0.0.1:{listener.getsockname()[1]}")
    assert (told.confirm_id, told.peer) == ("c-1", "b")
    assert (told.udp, told.tcp) == (udp, TcpAnswer.ACCEPTED)


@pytest.mark.parametrize("udp", [True, False])
def test_a_closed_port_is_said_to_refuse(udp: bool) -> None:
    with _closed_port() as port:
        told = _told(udp, f"127.0.0.1:{port}")
    assert (told.udp, told.tcp) == (udp, TcpAnswer.REFUSED)


def test_a_port_that_drops_what_comes_is_silent() -> None:
    # A full backlog is how a kernel drops a SYN without a firewall.
    with _port(backlog=0) as listener, contextlib.ExitStack() as stack:
        address = listener.getsockname()
        for _ in range(2):
            filling = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            filling.setblocking(False)
            filling.connect_ex(address)
        told = _told(False, f"127.0.0.1:{address[1]}")
    assert (told.udp, told.tcp) == (False, TcpAnswer.SILENT)


def test_a_peer_without_a_port_or_whose_port_has_no_address_is_not_asked_there() -> None:
    assert _told(True, "").tcp is TcpAnswer.NOT_ASKED
    assert _told(True, "no such host.invalid:1").tcp is TcpAnswer.NOT_ASKED


def test_one_that_cannot_be_asked_at_all_is_not_spoken_of() -> None:
    async def scenario() -> None:
        said: list[fleet_pb2.AgentMessage] = []
        async with _agent("a", said) as (asker, _), _agent("b", []) as (_, port):
            asker.confirm(ConfirmPeer("c-1", WatchedPeer("b", "not an address"), ""))
            # This one is asked after it, takes as long, and is told.
            assert (await _evidence(asker, said, f"127.0.0.1:{port}")).udp
            assert len(said) == 1

    asyncio.run(scenario())


def test_an_agent_without_descriptors_does_not_take_that_for_the_peers_silence() -> None:
    async def scenario() -> PeerEvidence:
        said: list[fleet_pb2.AgentMessage] = []
        async with _agent("a", said) as (asker, _), _agent("b", []) as (_, port):
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            with socket.socket() as last:
                lowest_free = last.fileno()
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
            try:
                return await _evidence(asker, said, f"127.0.0.1:{port}", f"127.0.0.1:{listening}")
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    with _port() as listener:
        listening = listener.getsockname()[1]
        told = asyncio.run(scenario())
    assert (told.udp, told.tcp) == (True, TcpAnswer.NOT_ASKED)


def test_questions_take_no_place_in_the_backlog_of_an_agent_that_accepts_nothing() -> None:
    async def scenario(port: int) -> set[TcpAnswer]:
        said: list[fleet_pb2.AgentMessage] = []
        async with _agent("a", said) as (asker, _), _agent("b", []) as (_, udp):
            asked = [
                await _evidence(asker, said, f"127.0.0.1:{udp}", f"127.0.0.1:{port}")
                for _ in range(20)
            ]
            return {one.tcp for one in asked}

    with _port(backlog=4) as listener:
        assert asyncio.run(scenario(listener.getsockname()[1])) == {TcpAnswer.ACCEPTED}
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_node_that_stood_still_while_it_asked_says_for_how_long() -> None:
    async def scenario() -> PeerEvidence:
        said: list[fleet_pb2.AgentMessage] = []
        async with _agent("a", said) as (asker, _):
            loop = asyncio.get_running_loop()
            loop.call_later(0.2, time.sleep, 1.5)
            return await _evidence(asker, said, f"127.0.0.1:{_SILENT_PORT}")

    told = asyncio.run(scenario())
    assert not told.udp
    assert 1_000_000_000 < told.late_ns < 10_000_000_000


def test_what_came_while_a_node_stood_still_is_taken_before_it_speaks() -> None:
    async def scenario() -> PeerEvidence:
        said: list[fleet_pb2.AgentMessage] = []
        loop = asyncio.get_running_loop()
        peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        peer.bind(("127.0.0.1", 0))
        with peer:
            async with _agent("a", said) as (asker, _):

                def stand_still() -> None:
                    question, source = peer.recvfrom(64)
                    time.sleep(1.5)  # longer than a node waits for an answer
                    peer.sendto(b"ESP1answ" + name_tag("b") + question[16:], source)

                loop.call_later(0.1, stand_still)
                return await _evidence(asker, said, f"127.0.0.1:{peer.getsockname()[1]}")

    assert asyncio.run(scenario()).udp


def test_names_and_addresses_of_ipv6_are_asked_as_well() -> None:
    async def scenario(bulk: int) -> list[PeerEvidence]:
        said: list[fleet_pb2.AgentMessage] = []
        async with (
            _agent("a", said, "::") as (asker, _),
            _agent("b", [], "::1") as (_, six),
            _agent("b", []) as (_, four),
        ):
            return [
                await _evidence(asker, said, f"[::1]:{six}", f"[::1]:{bulk}"),
                await _evidence(asker, said, f"127.0.0.1:{four}", f"[::1]:{bulk}"),
                await _evidence(asker, said, f"localhost:{four}", f"[::1]:{bulk}"),
            ]

    with _port(host="::1") as listener:
        told = asyncio.run(scenario(listener.getsockname()[1]))
    assert [(one.udp, one.tcp) for one in told] == [(True, TcpAnswer.ACCEPTED)] * 3
