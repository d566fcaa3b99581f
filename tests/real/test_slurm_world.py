"""Random events of us, people and restarts: no drain of others is changed, nothing loops."""

import asyncio
from pathlib import Path

import pytest

from real.slurm_cluster import missing
from real.slurm_drains import running_drains
from real.slurm_world import running_world

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(missing()), reason=missing())]

_NODES = [f"node{number}" for number in range(1, 7)]


async def _play(folder: Path, seed: int, events: int) -> None:
    with running_drains(_NODES) as drains:
        async with running_world(drains, folder, seed) as world:
            await world.play(events)


@pytest.mark.timeout(600)
def test_some_random_events_of_us_and_others_leave_each_hold_to_its_owner(tmp_path: Path) -> None:
    asyncio.run(_play(tmp_path, 1, 60))


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_random_events_of_us_and_others_leave_each_hold_to_its_owner(
    tmp_path: Path, seed: int
) -> None:
    asyncio.run(_play(tmp_path, seed, 500))
