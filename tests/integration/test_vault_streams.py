"""One copy over several connections: cut, spoiled, stalled and replayed."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.memory.region import Region, allocate_region
from everstep_agent.vault.snapshots.copies import CopyKey, CopyManifest, CopyRef
from everstep_agent.vault.snapshots.hashing import hash_region
from everstep_agent.vault.transfer.client import MismatchError, get_copy, put_copy
from everstep_agent.vault.transfer.connection import BulkConnection, BulkError
from everstep_agent.vault.transfer.messages import (
    PROTOCOL,
    JoinTransfer,
    PutCopy,
    Refusal,
    SendStripes,
    TransferJoined,
    transfer_token,
)
from everstep_agent.vault.transfer.remote_agent import RemoteAgent, connect
from everstep_agent.vault.transfer.stripes import STRIPE_BYTES
from everstep_common.orders import VaultDirective
from everstep_common.rank_messages import Entry
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import from_wire
from integration.bulk_relay import cut_after, flip_once, relay
from integration.vault_world import (
    JOB_ID,
    KEY,
    TIMEOUT_S,
    Node,
    identify,
    lived,
    plan,
    running,
    settings,
    training,
)

# Three stripes, the last one shorter.
SIZE = 2 * STRIPE_BYTES + STRIPE_BYTES // 2


def _vault(node: Node) -> JobVault:
    job = node.jobs.known("demo")
    assert job is not None
    return job.vault


@asynccontextmanager
async def _pair(folder: Path, **values: object) -> AsyncIterator[tuple[Node, Node]]:
    async with (
        running(settings(folder / "a", **values), "node-1") as first,
        running(settings(folder / "b", **values), "node-2") as second,
    ):
        first.direct(1)
        second.direct(1)
        yield first, second


def _copy(rank: int = 0, size: int = SIZE) -> tuple[CopyManifest, Region]:
    region = allocate_region(size, "test")
    os.pwrite(region.fd, os.urandom(size), 0)
    facts = CopyManifest(
        CopyKey(1, rank, 5), size, hash_region(region, size), (Entry("w", 0, size),)
    )
    return facts, region


async def _put(node: Node, address: str, facts: CopyManifest, region: Region) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        await put_copy(
            RemoteAgent(address, JOB_ID, KEY), facts, region, _vault(node).context.outgoing
        )


def _replica(node: Node, facts: CopyManifest) -> bytes:
    return bytes(_vault(node).holdings.replicas[facts.key].region.view()[: facts.size_bytes])


@lived
async def test_a_copy_arrives_whole_over_several_connections(tmp_path: Path) -> None:
    async with (
        _pair(tmp_path, transfer_streams=3) as (first, second),
        relay(second.jobs.bulk_address) as network,
    ):
        facts, region = _copy()
        await _put(first, network.address, facts, region)
        assert network.connections == 3
        assert _replica(second, facts) == bytes(region.view()[:SIZE])
        assert _vault(second).context.counters.received_bytes == SIZE
        region.release()


@lived
async def test_after_a_cut_a_replica_goes_on_where_it_was(tmp_path: Path) -> None:
    async with (
        _pair(tmp_path) as (first, second),
        relay(second.jobs.bulk_address) as network,
    ):
        facts, region = _copy()
        counts = _vault(second).context.counters
        # Of two streams each holds less than a stripe that is not complete.
        network.spoil = cut_after(2 * STRIPE_BYTES + STRIPE_BYTES // 4)
        with pytest.raises(ConnectionError):
            await _put(first, network.address, facts, region)
        await _put(first, network.address, facts, region)
        # Every stripe came once: what the first attempt brought was not sent again.
        assert counts.received_bytes == SIZE
        assert _replica(second, facts) == bytes(region.view()[:SIZE])
        region.release()


@lived
async def test_after_a_cut_a_fetch_goes_on_from_another_holder(tmp_path: Path) -> None:
    async with (
        _pair(tmp_path) as (first, second),
        running(settings(tmp_path / "c"), "node-3") as third,
        relay(first.jobs.bulk_address) as network,
    ):
        third.direct(1)
        facts, region = _copy()
        for holder in (first, second):
            await _put(third, holder.jobs.bulk_address, facts, region)
        vault = _vault(third)
        expected = CopyRef(facts.key, SIZE, facts.root_hash)
        network.spoil = cut_after(2 * STRIPE_BYTES + STRIPE_BYTES // 4)
        remote = RemoteAgent(network.address, JOB_ID, KEY)
        with pytest.raises(ConnectionError):
            await get_copy(remote, expected, vault.receive_buffers, vault.context.incoming)
        assert vault.receive_buffers.idle_bytes >= SIZE
        remote = RemoteAgent(second.jobs.bulk_address, JOB_ID, KEY)
        _, fetched = await get_copy(remote, expected, vault.receive_buffers, vault.context.incoming)
        assert fetched.is_frozen()
        assert bytes(fetched.view()[:SIZE]) == bytes(region.view()[:SIZE])
        assert vault.receive_buffers.idle_bytes == 0
        fetched.release()
        region.release()


@lived
async def test_a_restore_goes_on_from_the_only_holder_after_a_cut(tmp_path: Path) -> None:
    async with (
        _pair(tmp_path) as (first, second),
        relay(first.jobs.bulk_address) as network,
    ):
        facts, region = _copy()
        await _put(second, first.jobs.bulk_address, facts, region)
        await first.outlet.until(lambda: first.outlet.copies())
        source = second.source(first, 5)
        source.bulk_address = network.address
        network.spoil = cut_after(2 * STRIPE_BYTES + STRIPE_BYTES // 4)
        # Fetched ahead: the plan is enough.
        second.order(start_generation=plan(2, (source,), step=5))
        await second.outlet.until(lambda: second.outlet.copies())
        assert _replica(second, facts) == bytes(region.view()[:SIZE])
        assert not second.outlet.bad
        region.release()


@lived
async def test_a_bit_that_flips_on_the_way_is_reported_and_nothing_of_it_is_kept(
    tmp_path: Path,
) -> None:
    async with (
        _pair(tmp_path) as (first, second),
        relay(second.jobs.bulk_address) as network,
    ):
        facts, region = _copy()
        network.spoil = flip_once()
        with pytest.raises(MismatchError):
            await _put(first, network.address, facts, region)
        await second.outlet.until(lambda: second.outlet.bad)
        assert "arrived changed" in second.outlet.bad[0]
        assert facts.key not in _vault(second).holdings.replicas
        await _put(first, network.address, facts, region)
        assert _replica(second, facts) == bytes(region.view()[:SIZE])
        region.release()


@lived
async def test_a_peer_that_stalls_is_given_up_and_holds_up_nobody(tmp_path: Path) -> None:
    async with _pair(tmp_path, transfer_timeout_s=2.0) as (first, second):
        stalled, region = _copy(0)
        wires = [await _begun(second, stalled, rank) for rank in range(10, 20)]
        facts, other = _copy(1)
        await _put(first, second.jobs.bulk_address, facts, other)
        for wire in wires:
            with pytest.raises(BulkError, match="closed"):
                async with asyncio.timeout(TIMEOUT_S):
                    await wire.receive(Refusal)
            wire.close()
        region.release()
        other.release()


async def _begun(node: Node, facts: CopyManifest, rank: int) -> BulkConnection:
    """A put of which not a byte comes."""
    wire = await connect(RemoteAgent(node.jobs.bulk_address, JOB_ID, KEY), TIMEOUT_S)
    await wire.send(
        PutCopy(
            CopyRef(CopyKey(1, rank, 5), STRIPE_BYTES, facts.root_hash),
            (Entry("w", 0, 1),),
            PROTOCOL,
        )
    )
    assert isinstance(await wire.receive(SendStripes, Refusal), SendStripes)
    return wire


@lived
async def test_a_token_joins_the_transfer_it_was_made_for_and_only_once(tmp_path: Path) -> None:
    async with _pair(tmp_path) as (_, second):
        remote = RemoteAgent(second.jobs.bulk_address, JOB_ID, KEY)
        facts, region = _copy()
        wire = await connect(remote, TIMEOUT_S)
        await wire.send(
            PutCopy(CopyRef(CopyKey(1, 0, 5), SIZE, facts.root_hash), facts.entries, PROTOCOL)
        )
        accept = await wire.receive(SendStripes)
        assert isinstance(accept, SendStripes)

        async def join(key: CopyKey, number: int) -> object:
            one = await connect(remote, TIMEOUT_S)
            token = transfer_token(KEY, JOB_ID, key, (accept.nonce, number))
            await one.send(JoinTransfer(accept.nonce, number, token))
            answer = await one.receive(TransferJoined, Refusal)
            one.close()
            return answer

        assert await join(CopyKey(1, 1, 5), 1) == Refusal("the token is of another transfer")
        assert await join(CopyKey(2, 0, 5), 1) == Refusal("the token is of another transfer")
        assert await join(facts.key, 1) == TransferJoined()
        assert await join(facts.key, 1) != TransferJoined()
        wire.close()
        region.release()


@lived
async def test_a_rank_whose_replica_was_cut_on_its_way_is_replicated_nevertheless(
    tmp_path: Path,
) -> None:
    async with (
        _pair(tmp_path) as (first, second),
        relay(second.jobs.bulk_address) as network,
        training(first) as rank,
    ):
        network.spoil = cut_after(2 * STRIPE_BYTES + STRIPE_BYTES // 4)
        await rank.reserve(SIZE)
        content = os.urandom(SIZE)
        directive = fleet_pb2.VaultDirective(job="demo", generation=1, transfer_key=KEY, term=1)
        directive.replica_target = second.name
        directive.replica_bulk_address = network.address
        identify(directive)
        first.jobs.on_directive(from_wire(VaultDirective, directive))
        await rank.save(5, content)
        await second.outlet.until(lambda: second.outlet.copies())
        (replica,) = _vault(second).holdings.replicas.values()
        assert bytes(replica.region.view()[:SIZE]) == content
        assert _vault(second).context.counters.received_bytes == SIZE
        assert _vault(first).context.counters.replication_failures == 1


@lived
async def test_memory_of_a_replica_that_is_not_needed_any_more_takes_the_next_one(
    tmp_path: Path,
) -> None:
    async with _pair(tmp_path) as (first, second):
        facts, region = _copy()
        await _put(first, second.jobs.bulk_address, facts, region)
        vault = _vault(second)
        used = vault.context.allocator.used_bytes
        memory = vault.holdings.replicas[facts.key].region
        second.direct(1, 6)
        assert facts.key not in vault.holdings.replicas
        newer = CopyManifest(CopyKey(1, 0, 7), SIZE, facts.root_hash, facts.entries)
        await _put(first, second.jobs.bulk_address, newer, region)
        assert vault.holdings.replicas[newer.key].region is memory
        assert vault.context.allocator.used_bytes == used
        assert _replica(second, newer) == bytes(region.view()[:SIZE])
        region.release()


@lived
async def test_memory_that_a_process_has_seen_is_never_used_again(tmp_path: Path) -> None:
    async with _pair(tmp_path) as (first, second):
        facts, region = _copy()
        await _put(first, second.jobs.bulk_address, facts, region)
        vault = _vault(second)
        os.close(vault.holdings.replicas[facts.key].region.open_read_only())
        second.direct(1, 6)
        assert vault.receive_buffers.idle_bytes == 0
        # A thread gives it back.
        await second.outlet.until(lambda: vault.context.allocator.used_bytes == 0)
        region.release()
