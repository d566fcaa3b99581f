"""Calls of the admin service whose requests are no message, on a real controller."""

import asyncio
import logging
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from fakes.controllers import controller
from fakes.local_secret import shown

pytestmark = pytest.mark.timeout(60)

# A text field that ends before its length.
NO_REQUEST = b"\n"


STREAMED = ("WatchEvents", "ListCopies", "GetHistory")


async def ask(channel: grpc.aio.Channel, path: str) -> None:
    await cast("Any", channel.unary_unary(path))(NO_REQUEST, metadata=shown())


async def ask_all(channel: grpc.aio.Channel, path: str) -> None:
    await cast("Any", channel.unary_stream(path))(NO_REQUEST, metadata=shown()).read()


@pytest.mark.parametrize("method", ["Why", "Inject", *STREAMED])
def test_bytes_that_are_no_request_are_refused_in_a_sentence_and_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    async def scenario() -> None:
        async with (
            controller(tmp_path) as running,
            grpc.aio.insecure_channel(f"127.0.0.1:{running.port}") as channel,
        ):
            path = f"/everstep.admin.v1.Admin/{method}"
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await (ask_all if method in STREAMED else ask)(channel, path)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "not a request" in (refused.value.details() or "")

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert not caplog.records
