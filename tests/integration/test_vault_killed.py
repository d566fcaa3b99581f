"""Agent, trainer or both are killed at any moment: one whole step is restored, bit-exact."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as how
from hypothesis import strategies as st

from integration.vault_blows import AgentKilled, At, Job, Moment, RankKilled
from integration.vault_killed import killable
from integration.vault_states import CHUNKS
from integration.vault_world import lived


async def _lives_through(folder: Path, blows: "list[AgentKilled | RankKilled]") -> None:
    async with killable(folder) as (node, agent):
        job = Job(node, agent)
        await job.join()
        await job.start()
        await job.save()
        for blow in blows:
            await job.suffer(blow)
            await job.stop()
            await job.start()
            await job.restored()
            await job.save()
        assert not node.outlet.bad
        assert job.control is not None
        job.control.close()


@pytest.mark.parametrize("at", At)
@lived
async def test_the_agent_is_killed_at_a_message(tmp_path: Path, at: At) -> None:
    await _lives_through(tmp_path, [AgentKilled(at, moment) for moment in Moment])


@pytest.mark.parametrize("with_agent", [False, True])
@lived
async def test_the_rank_is_killed_at_every_chunk(tmp_path: Path, *, with_agent: bool) -> None:
    # A restarted agent takes a second: with it, every second chunk.
    blows = [RankKilled(at, with_agent) for at in range(0, CHUNKS + 1, 1 + with_agent)]
    await _lives_through(tmp_path, [*blows])


_BLOWS = st.one_of(
    st.builds(AgentKilled, st.sampled_from(At), st.sampled_from(Moment)),
    st.builds(RankKilled, st.integers(0, CHUNKS), st.booleans()),
)


@how(max_examples=6, deadline=None)
@given(st.lists(_BLOWS, min_size=2, max_size=4))
def test_what_is_restored_is_one_step_whole(blows: "list[AgentKilled | RankKilled]") -> None:
    folder = Path(tempfile.mkdtemp(prefix="everstep-"))
    try:
        asyncio.run(_lives_through(folder, blows))
    finally:
        shutil.rmtree(folder)
