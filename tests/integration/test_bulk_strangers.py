"""Another user of the node at its bulk port: let go unheard, counted, and in nobody's way."""

import asyncio
import os
import socket
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from everstep_agent.ipc.socket_owner import SocketOwner, SocketOwners, is_reset
from everstep_agent.jobs.job.context import Environment, user_refusals
from everstep_agent.quotas.user_quotas import Quota, UserRefusals
from everstep_agent.vault.transfer.stripes import STRIPE_BYTES
from fakes.authority import Authority
from integration.tls_world import copy, node, remote, replica, send
from integration.vault_world import TIMEOUT_S, Kept, Node, lived, running, settings

_NOBODY = 65534
_NODES = ("node-1", "node-2")
_STRANGER = Path(__file__).with_name("bulk_stranger.py")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@asynccontextmanager
async def _stranger(
    node: Node, count: int, interface: str = "", source: str = "", *, host: str = ""
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of the user nobody that connects so often."""
    told, _, port = node.jobs.bulk_address.rpartition(":")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(_STRANGER), host or told.strip("[]"), port),
        *(str(_NOBODY), str(count), interface, source),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _ended(process: asyncio.subprocess.Process) -> int:
    """Return how many of its connections the agent has ended, once it has made them all."""
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT_S):
        return int(await process.stdout.readline())


@asynccontextmanager
async def _counting(folder: Path, **values: object) -> AsyncIterator[tuple[Node, UserRefusals]]:
    refusals = user_refusals()
    world = Environment(stored_fds={}, keeper=Kept(), refusals=refusals)
    async with running(settings(folder, **values), world=world) as node:
        yield node, refusals


@needs_root
@pytest.mark.parametrize(
    ("bound", "interface", "source"),
    [
        ("127.0.0.1", "", ""),
        # Bound to an interface, a socket is found by that interface only.
        ("127.0.0.1", "lo", ""),
        # Loopback has more than one address.
        ("0.0.0.0", "", "127.0.0.2"),
        pytest.param(
            *("::1", "", ""),
            marks=pytest.mark.skipif(not _has_ipv6(), reason="no IPv6 here"),
        ),
    ],
)
@lived
async def test_a_user_of_the_node_who_is_no_agent_is_let_go_unheard_and_counted(
    tmp_path: Path, bound: str, interface: str, source: str
) -> None:
    host = bound if bound != "0.0.0.0" else "127.0.0.1"
    async with (
        _counting(tmp_path, bulk_host=bound, bulk_advertise_host=host) as (node, refusals),
        _stranger(node, 50, interface, source, host=host) as stranger,
    ):
        assert await _ended(stranger) == 50
        assert refusals.refused_now(Quota.BULK_PORT) == {_NOBODY: 50}
        metrics = node.jobs.metrics()
        assert metrics.bulk_connections_refused_total == 50
        assert metrics.bulk_connections_unproven == 0


@needs_root
@lived
async def test_ipv4_that_comes_to_an_address_of_ipv6_is_told_apart_too(tmp_path: Path) -> None:
    if not _has_ipv6():
        pytest.skip("no IPv6 here")
    async with (
        _counting(tmp_path, bulk_host="::", bulk_advertise_host="127.0.0.1") as (node, refusals),
        _stranger(node, 5, host="127.0.0.1") as stranger,
    ):
        assert await _ended(stranger) == 5
        assert refusals.refused_now(Quota.BULK_PORT) == {_NOBODY: 5}


@needs_root
@pytest.mark.parametrize("inside_tls", [False, True])
@lived
async def test_a_transfer_under_way_keeps_its_connections_beside_a_flood(
    tmp_path: Path, *, inside_tls: bool
) -> None:
    signs = Authority(tmp_path)
    certificates = [signs.issue(name, "agent") if inside_tls else None for name in _NODES]
    slowly = {"replication_bytes_per_s_max": 2 * STRIPE_BYTES}
    async with (
        node(tmp_path, _NODES[0], certificates[0], **slowly) as first,
        node(tmp_path, _NODES[1], certificates[1]) as second,
        _stranger(second, 0),
    ):
        facts, region = copy()
        # It takes more than a second, and is tried once: what is cut is an error here.
        await send(first, remote(first, second), facts, region)
        assert replica(second, facts) == bytes(region.view()[: facts.size_bytes])
        region.release()
        assert second.jobs.metrics().bulk_connections_refused_total > 100


@lived
async def test_the_kernel_finds_whose_a_connection_is_and_no_other() -> None:
    owners = SocketOwners()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        assert owners.can_find(listener)
        client.connect(listener.getsockname())
        served, address = listener.accept()
        with served:
            found = owners.find(address, served.getsockname())
            assert found == SocketOwner(os.getuid(), is_open=True)
            assert owners.find((address[0], 1), served.getsockname()) is None
            # Its own end of it has the same addresses, the other way round.
            turned = owners.find(served.getsockname(), address)
            assert turned == SocketOwner(os.getuid(), is_open=True)
            client.close()
            gone = owners.find(address, served.getsockname())
            assert gone is not None
            assert not gone.is_open
    owners.close()


@lived
async def test_words_of_a_connection_that_was_reset_are_not_heard(tmp_path: Path) -> None:
    async with _counting(tmp_path) as (node, _):
        host, _, port = node.jobs.bulk_address.rpartition(":")
        for _ in range(20):
            with socket.create_connection((host, int(port))) as client:
                client.sendall(bytes(192))
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"\xff" * 192)  # they are served in the order in which they came
        async with asyncio.timeout(TIMEOUT_S):
            with suppress(ConnectionError):
                await reader.read()
        writer.close()
        assert node.jobs.metrics().bulk_connections_refused_total == 20


def test_a_connection_that_was_reset_is_known_though_its_words_are_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()) as client:
            client.sendall(b"words")
            served, _ = listener.accept()
            assert not is_reset(served)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with served:
            assert served.recv(1, socket.MSG_PEEK) == b"w"
            assert is_reset(served)
