"""The agent at either end of a transfer is killed at any message: nothing is torn, nothing lost."""

import random
from pathlib import Path

import pytest

from integration.bulk_blows import fetches_arrive, replicas_arrive
from integration.bulk_messages import FETCH, PUT, Blow, blows
from integration.vault_world import lived

# The whole sweep is the long test's.
_SAMPLED = 2
_SEED = 9


def _some(of: list[Blow]) -> list[Blow]:
    return random.Random(_SEED).sample(of, _SAMPLED)


@lived
async def test_agents_are_killed_while_a_replica_travels(tmp_path: Path) -> None:
    await replicas_arrive(tmp_path, _some(blows(PUT)))


@lived
async def test_agents_are_killed_while_a_copy_is_fetched(tmp_path: Path) -> None:
    await fetches_arrive(tmp_path, _some(blows(FETCH)))


@pytest.mark.long
@pytest.mark.parametrize("message", PUT, ids=lambda message: f"{message[0]}-{message[1]}")
@lived
async def test_an_agent_is_killed_at_a_message_of_a_replica(
    tmp_path: Path, message: tuple[str, int]
) -> None:
    await replicas_arrive(tmp_path, blows((message,)))


@pytest.mark.long
@pytest.mark.parametrize("message", FETCH, ids=lambda message: f"{message[0]}-{message[1]}")
@lived
async def test_an_agent_is_killed_at_a_message_of_a_restore(
    tmp_path: Path, message: tuple[str, int]
) -> None:
    await fetches_arrive(tmp_path, blows((message,)))
