"""Nodes that do not agree on TLS, or do not trust each other: nothing passes; it is said why."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from everstep_agent.vault.transfer.transport import TlsError
from everstep_proto.tls import TlsSettings
from fakes.authority import Authority
from fakes.waits import eventually
from integration.bulk_relay import relay
from integration.tls_world import (
    authority,
    copy,
    node,
    pair,
    refusals,
    remote,
    replica,
    send,
    vault,
)
from integration.vault_world import KEY, TIMEOUT_S, Node, lived, training

_LITTLE = 1 << 20
_LAST_YEAR = datetime(2025, 1, 1, tzinfo=UTC)


async def _refused(first: Node, second: Node, words: str) -> None:
    """A copy does not pass, for a reason that is given, and is found to be so."""
    facts, region = copy(_LITTLE)
    passed = bytearray()
    async with relay(second.jobs.bulk_address) as network:
        network.overhear = passed.extend
        with pytest.raises(TlsError, match=words):
            await send(first, remote(first, second, network.address), facts, region)
    assert not vault(second).holdings.replicas
    assert bytes(region.view()[:64]) not in passed
    (found,) = refusals(first).items()
    assert found[0] == f"peer/{second.name}"
    assert words in found[1]
    region.release()


@pytest.mark.parametrize("here", [True, False])
@lived
async def test_nodes_that_are_set_differently_exchange_nothing_and_say_so(
    tmp_path: Path, *, here: bool
) -> None:
    signs = authority(tmp_path / "ca")
    shown = {name: signs.issue(name, "agent") for name in ("node-1", "node-2")}
    async with (
        node(tmp_path, "node-1", shown["node-1"] if here else None) as first,
        node(tmp_path, "node-2", None if here else shown["node-2"]) as second,
    ):
        said = ("true", "false") if here else ("false", "true")
        setting = "jobs.bulk_tls is {} here and {} there" if here else "is {1} there and {0} here"
        await _refused(first, second, setting.format(*said))


@lived
async def test_a_job_whose_nodes_are_set_differently_trains_on_and_the_peer_is_found(
    tmp_path: Path,
) -> None:
    signs = authority(tmp_path / "ca")
    async with (
        node(tmp_path, "node-1", signs.issue("node-1", "agent")) as first,
        node(tmp_path, "node-2", None) as second,
        training(first) as rank,
    ):
        await rank.reserve(_LITTLE)
        first.direct(1, target=second)
        await rank.save(5, os.urandom(_LITTLE))
        await eventually(lambda: "peer/node-2" in refusals(first))
        await first.outlet.until(lambda: (1, 0, 5, False) in first.outlet.copies())
        assert not second.outlet.copies()


@lived
async def test_a_node_of_another_authority_is_refused(tmp_path: Path) -> None:
    ours, theirs = authority(tmp_path / "ours"), authority(tmp_path / "theirs")
    async with (
        node(tmp_path, "node-1", ours.issue("node-1", "agent")) as first,
        node(tmp_path, "node-2", theirs.issue("node-2", "agent")) as second,
    ):
        await _refused(first, second, "certificate of 127.0.0.1 is refused")


@lived
async def test_who_only_trusts_our_authority_gets_nothing_from_us(tmp_path: Path) -> None:
    ours, theirs = authority(tmp_path / "ours"), authority(tmp_path / "theirs")
    shown = theirs.issue("node-1", "agent")
    both = tmp_path / "both.pem"
    both.write_bytes(
        b"".join((tmp_path / who / "ca.pem").read_bytes() for who in ("ours", "theirs"))
    )
    async with (
        node(tmp_path, "node-1", replace(shown, ca=both)) as first,
        node(tmp_path, "node-2", ours.issue("node-2", "agent")) as second,
    ):
        await _refused(first, second, "refuses the certificate of this node")


@pytest.mark.parametrize("expired", ["node-1", "node-2"])
@lived
async def test_an_expired_certificate_is_refused_by_either_end(
    tmp_path: Path, expired: str
) -> None:
    signs = authority(tmp_path / "ca")

    def shown(name: str) -> TlsSettings:
        return signs.issue(name, "agent", ends=_LAST_YEAR if name == expired else None)

    async with (
        node(tmp_path, "node-1", shown("node-1")) as first,
        node(tmp_path, "node-2", shown("node-2")) as second,
    ):
        await _refused(first, second, "expired")


@lived
async def test_a_node_in_another_ones_place_is_refused(tmp_path: Path) -> None:
    signs = authority(tmp_path / "ca")
    async with (
        node(tmp_path, "node-1", signs.issue("node-1", "agent")) as first,
        node(tmp_path, "node-3", signs.issue("node-3", "agent")) as third,
    ):
        second = replace(third, name="node-2")
        await _refused(first, second, "of node-3, and not of node-2")


@pytest.mark.parametrize("role", ["operator", "viewer"])
@lived
async def test_only_agents_are_listened_to(tmp_path: Path, role: str) -> None:
    signs = authority(tmp_path / "ca")
    alice = signs.issue("alice", role)
    async with node(tmp_path, "node-2", signs.issue("node-2", "agent")) as second:
        context = ssl.create_default_context(cafile=alice.ca)
        context.load_cert_chain(str(alice.certificate), alice.key)
        host, port = second.jobs.bulk_address.split(":")
        reader, writer = await asyncio.open_connection(
            host, int(port), ssl=context, server_hostname="localhost"
        )
        # Not a word of the protocol of transfers: it ends there.
        assert await asyncio.wait_for(reader.read(), TIMEOUT_S) == b""
        writer.close()


@asynccontextmanager
async def _rotating(folder: Path) -> AsyncIterator[tuple[Node, Node, Authority]]:
    """Two nodes; the files of the second can be replaced."""
    signs = authority(folder / "ca")
    async with (
        node(folder, "node-1", signs.issue("node-1", "agent")) as first,
        node(folder, "node-2", signs.issue("node-2", "agent")) as second,
    ):
        yield first, second, signs


def _install(folder: Path, issued: TlsSettings, *suffixes: str) -> None:
    """Put files in the place of those of the second node, as tools that rotate do."""
    assert issued.certificate is not None
    for suffix in suffixes:
        os.replace(issued.certificate.with_suffix(suffix), folder / "ca" / f"node-2{suffix}")


@lived
async def test_a_certificate_that_is_replaced_is_shown_to_the_next_connection(
    tmp_path: Path,
) -> None:
    async with _rotating(tmp_path) as (first, second, signs):
        facts, region = copy(_LITTLE)
        _install(tmp_path, signs.issue("node-2", "agent", "old", _LAST_YEAR), ".pem", ".key")
        await _refused(first, second, "expired")
        _install(tmp_path, signs.issue("node-2", "agent", "new"), ".pem", ".key")
        await send(first, remote(first, second), facts, region)
        assert replica(second, facts) == bytes(region.view()[:_LITTLE])
        assert not refusals(first)
        region.release()


@lived
async def test_half_of_a_new_certificate_leaves_the_one_before_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with _rotating(tmp_path) as (first, second, signs):
        facts, region = copy(_LITTLE)
        _install(tmp_path, signs.issue("node-2", "agent", "new"), ".key")
        await send(first, remote(first, second), facts, region)
        assert replica(second, facts) == bytes(region.view()[:_LITTLE])
        assert "keeping the certificate that was read before" in caplog.text
        region.release()


@lived
async def test_a_certificate_does_not_stand_in_for_the_key_of_the_job(tmp_path: Path) -> None:
    async with pair(tmp_path) as (first, second):
        facts, region = copy(_LITTLE)
        stranger = replace(remote(first, second), transfer_key=b"w" * len(KEY))
        with pytest.raises(ConnectionError, match="transfer key"):
            await send(first, stranger, facts, region)
        assert not vault(second).holdings.replicas
        region.release()
