"""Copies between nodes inside TLS: whole, unread on their way, and as hardy as without it."""

import asyncio
import os
from pathlib import Path

import pytest

from everstep_agent.vault.transfer.stripes import STRIPE_BYTES
from everstep_common.launcher_messages import Start
from everstep_common.orders import VaultDirective
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import from_wire
from integration.bulk_relay import Relay, cut_after, flip_once, relay
from integration.tls_world import (
    SIZE,
    authority,
    copy,
    node,
    pair,
    remote,
    replica,
    send,
    vault,
)
from integration.vault_world import (
    KEY,
    TIMEOUT_S,
    Node,
    identify,
    launcher,
    lived,
    plan,
    trainer,
    training,
)

# Of one stripe; several pieces of what goes through a network of the tests.
_LITTLE = 4 << 20


@pytest.mark.parametrize(
    "values",
    [
        {"transfer_streams": 1},
        {"transfer_streams": 3},
        {"replication_bytes_per_s_max": 128 << 20},
    ],
)
@lived
async def test_a_replica_arrives_whole_inside_tls(
    tmp_path: Path, values: dict[str, object]
) -> None:
    async with pair(tmp_path, **values) as (first, second):
        facts, region = copy()
        await send(first, remote(first, second), facts, region)
        assert replica(second, facts) == bytes(region.view()[:SIZE])
        assert vault(second).context.counters.received_bytes == SIZE
        region.release()


@pytest.mark.parametrize("tls", [True, False])
@lived
async def test_only_without_tls_can_a_copy_be_read_on_its_way(tmp_path: Path, *, tls: bool) -> None:
    signs = authority(tmp_path / "ca")
    shown = [signs.issue(name, "agent") if tls else None for name in ("node-1", "node-2")]
    async with (
        node(tmp_path, "node-1", shown[0]) as first,
        node(tmp_path, "node-2", shown[1]) as second,
        relay(second.jobs.bulk_address) as network,
    ):
        passed = bytearray()
        network.overhear = passed.extend
        facts, region = copy(_LITTLE)
        await send(first, remote(first, second, network.address), facts, region)
        content = bytes(region.view()[:_LITTLE])
        assert replica(second, facts) == content
        assert len(passed) > _LITTLE
        read = [content[at : at + 64] in passed for at in range(0, _LITTLE - 64, _LITTLE // 8)]
        assert read == [not tls] * len(read)
        # Nor which job and which copy it is.
        assert (b'{"type":"PutCopy"' in passed) is not tls
        region.release()


@lived
async def test_a_rank_is_restored_from_a_peer_inside_tls(tmp_path: Path) -> None:
    signs = authority(tmp_path / "ca")
    async with (
        node(tmp_path, "node-1", signs.issue("node-1", "agent")) as first,
        node(tmp_path, "node-2", signs.issue("node-2", "agent")) as second,
        node(tmp_path, "node-3", signs.issue("node-3", "agent")) as third,
    ):
        content = os.urandom(SIZE)
        async with training(first) as rank:
            await rank.reserve(SIZE)
            first.direct(1, target=second)
            await rank.save(4, content)
            await second.outlet.until(lambda: (1, 0, 4, True) in second.outlet.copies())
        source = second.source(second, 4)
        async with launcher(third) as control:
            third.order(start_generation=plan(2, (source,), step=4))
            assert isinstance(await control.hear(), Start)
            async with trainer(third, 0, generation=2) as rank:
                assert await rank.restore("w") == content


@lived
async def test_after_a_cut_a_replica_goes_on_where_it_was(tmp_path: Path) -> None:
    size = STRIPE_BYTES + _LITTLE
    async with (
        pair(tmp_path, transfer_streams=1) as (first, second),
        relay(second.jobs.bulk_address) as network,
    ):
        facts, region = copy(size)
        # One stripe is there, and half of the next one.
        network.data_bytes, network.spoil = 1, cut_after(STRIPE_BYTES + _LITTLE // 2)
        to = remote(first, second, network.address)
        with pytest.raises(ConnectionError):
            await send(first, to, facts, region)
        await send(first, to, facts, region)
        # Every stripe came once: what the first attempt brought was not sent again.
        assert vault(second).context.counters.received_bytes == size
        assert replica(second, facts) == bytes(region.view()[:size])
        region.release()


@lived
async def test_a_bit_that_flips_on_the_way_is_noticed_and_the_copy_sent_again(
    tmp_path: Path,
) -> None:
    async with (
        pair(tmp_path) as (first, second),
        relay(second.jobs.bulk_address) as network,
        training(first) as rank,
    ):
        # A certificate is smaller: it is a byte of the copy.
        network.data_bytes, network.spoil = 16384, flip_once()
        await rank.reserve(_LITTLE)
        content = os.urandom(_LITTLE)
        _replicate(first, second, network)
        await rank.save(5, content)
        await second.outlet.until(lambda: (1, 0, 5, True) in second.outlet.copies())
        (found,) = vault(second).holdings.replicas.values()
        assert bytes(found.region.view()[:_LITTLE]) == content
        # TLS noticed it before there was a copy that could be called bad.
        assert vault(first).context.counters.replication_failures >= 1
        assert not second.outlet.bad


@lived
async def test_a_transfer_that_is_stopped_in_the_middle_ends_and_can_be_repeated(
    tmp_path: Path,
) -> None:
    async with (
        pair(tmp_path) as (first, second),
        relay(second.jobs.bulk_address) as network,
    ):
        facts, region = copy(_LITTLE)
        passing = asyncio.Event()

        def hold(piece: bytes) -> bytes:
            passing.set()
            return piece

        network.data_bytes, network.spoil, network.pace_s = 16384, hold, 0.2
        sending = asyncio.create_task(
            send(first, remote(first, second, network.address), facts, region)
        )
        async with asyncio.timeout(TIMEOUT_S):
            await passing.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        network.pace_s = 0.0
        network.cut()
        await send(first, remote(first, second), facts, region)
        assert replica(second, facts) == bytes(region.view()[:_LITTLE])
        region.release()


def _replicate(first: Node, second: Node, network: Relay) -> None:
    """Have the first node replicate to the second, by way of the network of the test."""
    directive = fleet_pb2.VaultDirective(job="demo", generation=1, transfer_key=KEY, term=1)
    directive.replica_target = second.name
    directive.replica_bulk_address = network.address
    identify(directive)
    first.jobs.on_directive(from_wire(VaultDirective, directive))
