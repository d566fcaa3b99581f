"""A rank whose state is in more copies than one message has descriptors gets all of them."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from everstep.copy_engine.memory import Copier
from everstep.rank.agent_link import SILENCE_S, AgentLink
from everstep.rank.environment import Membership
from everstep.saving.restoring import Restorer
from everstep.state.memory.arrays import array_view
from everstep.state.plain import PlainCapture
from everstep_agent.vault.memory.region import allocate_region
from everstep_agent.vault.snapshots.copies import CopyKey, CopyManifest
from everstep_agent.vault.snapshots.hashing import hash_region
from everstep_agent.vault.transfer.client import put_copy
from everstep_agent.vault.transfer.remote_agent import RemoteAgent
from everstep_common.frames import FDS_MAX
from everstep_common.rank_messages import Entry, Restore
from everstep_proto.generated import fleet_pb2
from fakes.waits import wait_until
from integration.vault_world import (
    JOB_ID,
    KEY,
    Node,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
)

_COPIES = 300
_ITEMS = 8
# Of one host no more may knock at once (vault/replication/server.py).
_AT_ONCE = 16


def _state(rank: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.arange(_ITEMS, dtype=np.int64) + _ITEMS * rank


async def _held(node: Node) -> tuple[fleet_pb2.ShardSource, ...]:
    """Have a step of so many ranks on a node; return what a plan tells of it."""
    node.direct(1)
    for begin in range(0, _COPIES, _AT_ONCE):
        ranks = range(begin, min(begin + _AT_ONCE, _COPIES))
        await asyncio.gather(*(_put(node, rank) for rank in ranks))
    await node.outlet.until(lambda: len(node.outlet.copies()) == _COPIES)
    return tuple(node.source(node, 5, rank) for rank in range(_COPIES))


async def _put(node: Node, rank: int) -> None:
    job = node.jobs.known("demo")
    assert job is not None
    state = _state(rank)
    view = array_view(f"w{rank}", state)
    entry = Entry(view.name, 0, state.nbytes, view.format, view.shape)
    region = allocate_region(state.nbytes, "test")
    os.pwrite(region.fd, state.tobytes(), 0)
    root_hash = hash_region(region, state.nbytes)
    facts = CopyManifest(CopyKey(1, rank, 5), state.nbytes, root_hash, (entry,))
    remote = RemoteAgent(node.jobs.bulk_address, JOB_ID, KEY)
    await put_copy(remote, facts, region, job.vault.context.outgoing)
    region.release()


class _Cut(AgentLink):
    """A link that is cut after the first part of a restore, once the agent has seen its end."""

    def __init__(self, member: Membership, node: Node) -> None:
        super().__init__(member)
        self._node = node
        self.begins: list[int | None] = []

    def ask(
        self,
        message: object,
        expected: tuple[type, ...],
        timeout_s: float,
        *,
        silence_s: float = SILENCE_S,
        on_late: Callable[[object], None] = lambda _: None,
    ) -> tuple[object | None, list[int]]:
        answer = super().ask(message, expected, timeout_s, silence_s=silence_s, on_late=on_late)
        if isinstance(message, Restore):
            self.begins.append(message.begin)
            if len(self.begins) == 1:
                self.drop()
                wait_until(lambda: not self._node.jobs.training_pids())
        return answer


def _member(node: Node) -> Membership:
    return Membership(
        job="demo",
        generation=2,
        rank=0,
        socket=str(node.settings.socket_path),
        token="secret",
        starts_fresh=False,
    )


async def _restored(link: AgentLink) -> None:
    state = {f"w{rank}": np.zeros(_ITEMS, np.int64) for rank in range(_COPIES)}
    restorer = Restorer(link, Copier(1), time, 20.0, fresh=False)
    try:
        assert await asyncio.to_thread(restorer.restore, PlainCapture(state)) == 5
    finally:
        link.drop()
    for rank in range(_COPIES):
        assert np.array_equal(state[f"w{rank}"], _state(rank))


@lived
async def test_a_rank_restores_from_three_hundred_copies(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node):
        node.order(start_generation=plan(2, await _held(node), step=5))
        await _restored(AgentLink(_member(node)))
        await node.outlet.until(lambda: not node.jobs.training_pids())
        cut = _Cut(_member(node), node)
        await _restored(cut)
        assert cut.begins == [0, FDS_MAX, FDS_MAX]
        async with trainer(node, 0, generation=2) as rank:
            assert await rank.restore("w7") == _state(7).tobytes()
