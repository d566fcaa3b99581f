"""Nodes whose transfers are inside TLS, or are not, for tests of what may pass between them."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everstep_agent.detectors.transfer_refusals import REFUSED
from everstep_agent.jobs.job.context import Environment
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.memory.region import Region, allocate_region
from everstep_agent.vault.snapshots.copies import CopyKey, CopyManifest
from everstep_agent.vault.snapshots.hashing import hash_region
from everstep_agent.vault.transfer.client import put_copy
from everstep_agent.vault.transfer.remote_agent import RemoteAgent
from everstep_agent.vault.transfer.stripes import STRIPE_BYTES
from everstep_common.judging.judgement import Faulty
from everstep_common.rank_messages import Entry
from everstep_proto.tls import TlsSettings
from fakes.authority import Authority
from integration.vault_world import JOB_ID, KEY, TIMEOUT_S, Kept, Node, running, settings

# Three stripes, the last one shorter.
SIZE = 2 * STRIPE_BYTES + STRIPE_BYTES // 2


def authority(folder: Path) -> Authority:
    """A certificate authority with a folder of its own."""
    folder.mkdir(parents=True)
    return Authority(folder)


@asynccontextmanager
async def node(
    folder: Path, name: str, tls: TlsSettings | None, **values: object
) -> AsyncIterator[Node]:
    """A node that knows the job; ``tls`` None: with bulk_tls off."""
    chosen = settings(folder / name, bulk_tls=tls is not None, **values)
    world = Environment(stored_fds={}, keeper=Kept(), tls=tls or TlsSettings())
    async with running(chosen, name, world) as one:
        one.direct(1)
        yield one


@asynccontextmanager
async def pair(folder: Path, **values: object) -> AsyncIterator[tuple[Node, Node]]:
    """Two nodes with certificates of one authority."""
    signs = authority(folder / "ca")
    async with (
        node(folder, "node-1", signs.issue("node-1", "agent"), **values) as first,
        node(folder, "node-2", signs.issue("node-2", "agent"), **values) as second,
    ):
        yield first, second


def vault(of: Node) -> JobVault:
    """The job's vault on a node."""
    job = of.jobs.known("demo")
    assert job is not None
    return job.vault


def copy(size: int = SIZE) -> tuple[CopyManifest, Region]:
    """A copy of random bytes."""
    region = allocate_region(size, "test")
    os.pwrite(region.fd, os.urandom(size), 0)
    facts = CopyManifest(CopyKey(1, 0, 5), size, hash_region(region, size), (Entry("w", 0, size),))
    return facts, region


def remote(here: Node, there: Node, address: str = "") -> RemoteAgent:
    """What a node calls another one, as its configuration says; perhaps by another way."""
    return vault(here).context.remote_agent(
        there.name, address or there.jobs.bulk_address, JOB_ID, KEY
    )


async def send(here: Node, to: RemoteAgent, facts: CopyManifest, region: Region) -> None:
    """Put a replica on another node."""
    async with asyncio.timeout(TIMEOUT_S):
        await put_copy(to, facts, region, vault(here).context.outgoing)


def replica(on: Node, facts: CopyManifest) -> bytes:
    """The bytes of a replica that a node holds."""
    return bytes(vault(on).holdings.replicas[facts.key].region.view()[: facts.size_bytes])


def refusals(of: Node) -> dict[str, str]:
    """What a node finds of peers that refuse it, or that it refuses: the evidence."""
    return {
        one.finding.component: one.finding.evidence
        for one in of.jobs.judgements(())
        if isinstance(one, Faulty) and one.key.condition == REFUSED
    }
