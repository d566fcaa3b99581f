"""The library is killed at any piece of its copy: both ranks restore one step, whole, bit-exact."""

import asyncio
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as how
from hypothesis import strategies as st

from everstep_common.launcher_messages import Start, Stop
from everstep_common.reports import GenerationStopped
from everstep_proto.generated import fleet_pb2
from integration.trainer_killed_rank import PIECES
from integration.vault_killed import environ
from integration.vault_world import Client, Node, launcher, lived, plan, running, settings

RANKS = 2
_RANK = Path(__file__).with_name("trainer_killed_rank.py")
# Steps of a generation; the last of them is the one that somebody dies in.
_STEPS = 2


@dataclass(frozen=True)
class Blow:
    """These ranks die before this piece of the copy."""

    ranks: frozenset[int]
    piece: int


@dataclass
class Job:
    """What the controller would know: the newest whole step, and which generation saved it."""

    node: Node
    control: Client
    generation: int = 0
    known: int = -1

    async def suffer(self, blow: Blow) -> None:
        """Run a generation from the newest whole step on, until it is hit."""
        last = self.known + _STEPS
        await self._start()
        codes = await asyncio.gather(*(self._rank(rank, last, blow) for rank in range(RANKS)))
        assert codes == [-signal.SIGKILL if rank in blow.ranks else 0 for rank in range(RANKS)]
        await self._stop()
        copies = self.node.outlet.copies()
        of_last = {rank for of, rank, step, _ in copies if (of, step) == (self.generation, last)}
        assert of_last == set(range(RANKS)) - blow.ranks
        self.known = last - 1 if blow.ranks else last

    async def _start(self) -> None:
        before, self.generation = self.generation, self.generation + 1
        sources: tuple[fleet_pb2.ShardSource, ...] = ()
        if before:
            sources = tuple(
                self.node.source(self.node, self.known, rank, before) for rank in range(RANKS)
            )
        step = self.known if before else None
        order = plan(self.generation, sources, step=step, processes=RANKS)
        self.node.order(start_generation=order)
        await self._hear(Start)

    async def _stop(self) -> None:
        """Stop the generation: after it, every copy that was committed is verified and told."""
        order = fleet_pb2.StopGeneration(job="demo", generation=self.generation)
        self.node.order(stop_generation=order)
        await self._hear(Stop)
        await self.control.tell(GenerationStopped(self.generation, self.generation, 1))
        await self.node.outlet.until(
            lambda: self.node.outlet.reports["demo"].settled_generation >= self.generation
        )

    async def _hear(self, kind: type) -> None:
        while not isinstance(await self.control.hear(), kind):
            pass

    async def _rank(self, rank: int, last: int, blow: Blow) -> int:
        piece = blow.piece if rank in blow.ranks else -1
        numbers = (self.generation, rank, RANKS, self.known, last, piece)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(_RANK), str(self.node.settings.socket_path)),
            *map(str, numbers),
            env=environ(),
        )
        return await process.wait()


async def _lives_through(folder: Path, blows: Sequence[Blow]) -> None:
    async with running(settings(folder)) as node, launcher(node) as control:
        job = Job(node, control)
        # Whatever it was, the one after it restores what was whole, and is not hit.
        for blow in (*blows, Blow(frozenset(), 0)):
            await job.suffer(blow)
        assert not node.outlet.bad


@pytest.mark.parametrize("ranks", [{0}, {0, 1}])
@lived
async def test_the_copy_is_cut_at_every_seventh_piece(tmp_path: Path, ranks: set[int]) -> None:
    pieces = range(0, PIECES + 1, 7)
    await _lives_through(tmp_path, [Blow(frozenset(ranks), piece) for piece in pieces])


_BLOWS = st.builds(
    Blow, st.frozensets(st.integers(0, RANKS - 1), min_size=1), st.integers(0, PIECES)
)


@how(max_examples=4, deadline=None)
@given(st.lists(_BLOWS, min_size=1, max_size=3))
def test_what_both_ranks_restore_is_one_step_whole(blows: list[Blow]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="everstep-"))
    try:
        asyncio.run(_lives_through(folder, blows))
    finally:
        shutil.rmtree(folder)
