"""Enrolment where there are several controllers: one that answers gives the certificate."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from everstep_agent.commands.join import JoinError
from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.enrolment.client import RefusedError
from everstep_common.config import load
from fakes.ports import reserved_port
from integration.enrolment_world import World, left_in, world

pytestmark = pytest.mark.timeout(120)


def with_world(folder: Path, act: Callable[[World], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with world(folder) as there:
            await act(there)

    asyncio.run(scenario())


def test_a_node_joins_by_the_one_that_answers_and_is_configured_with_all(tmp_path: Path) -> None:
    async def act(there: World) -> None:
        node, token = there.node("gpu-1"), await there.token("gpu-1")
        with reserved_port() as dead:
            both = f"127.0.0.1:{dead},{there.address}"
            lines = await there.join(node, token, both)
            port = there.controller.port
            # Both take agents at the port that the one has told which answered.
            config = load(AgentConfig, node.config)
            assert config.controllers == (f"127.0.0.1:{port}", f"localhost:{port}")
            assert config.enrolment.addresses == (f"127.0.0.1:{dead}", there.address)
            assert sum("takes this certificate" in line for line in lines) == 2
            before = there.serial("gpu-1")
            assert await there.renew(node, both) == 0
            assert there.serial("gpu-1") != before

    with_world(tmp_path, act)


def test_what_one_controller_refuses_is_asked_of_no_other(tmp_path: Path) -> None:
    async def act(there: World) -> None:
        node, token = there.node("gpu-1"), await there.token("gpu-2")
        left = left_in(node.folder)
        with pytest.raises(RefusedError):
            await there.join(node, token, f"{there.address},127.0.0.1:1")
        with pytest.raises(JoinError, match="an address twice"):
            await there.join(node, token, f"{there.address},{there.address}")
        assert left_in(node.folder) == left

    with_world(tmp_path, act)


def test_where_none_answers_each_is_named_and_a_wrong_address_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def act(there: World) -> None:
        node, token = there.node("gpu-1"), await there.token("gpu-1")
        with pytest.raises(JoinError, match="'' is no address"):
            await there.join(node, token, f"{there.address},")
        joined = await there.joined("gpu-2")
        with reserved_port() as one, reserved_port() as two:
            assert await there.renew(joined, f"127.0.0.1:{one},127.0.0.1:{two}") == 1
        told = capsys.readouterr().err
        assert f"nobody listens at 127.0.0.1:{one}" in told
        assert f"nobody listens at 127.0.0.1:{two}" in told

    with_world(tmp_path, act)
