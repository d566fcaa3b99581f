"""Ends of agents' streams over real gRPC, at moments that a real agent seldom chooses."""

import asyncio
import gc
import logging
from pathlib import Path

import grpc
import pytest

from everstep_proto.record_codec import WireError
from fakes.agent_stream import WAIT_S, agent_stream
from fakes.controllers import controller

pytestmark = pytest.mark.timeout(60)


def test_a_stream_whose_agent_says_no_more_ends_however_soon_that_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with controller(tmp_path) as running:
            for number in range(30):
                async with (
                    asyncio.timeout(WAIT_S),
                    agent_stream(running.port, f"n{number}") as stream,
                ):
                    await stream.send_hello()
                    await stream.call.done_writing()
                    code, _ = await stream.end()
                    assert code is grpc.StatusCode.OK

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert not caplog.records


def test_what_was_wrong_with_a_hello_is_forgotten_with_its_stream(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controller(tmp_path) as running:
            for _ in range(5):
                async with agent_stream(running.port, "no name") as stream:
                    await stream.send_hello()
                    code, _ = await stream.end()
                    assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert not [one for one in gc.get_objects() if type(one) is WireError]

    gc.collect()
    gc.disable()
    try:
        asyncio.run(scenario())
    finally:
        gc.enable()
