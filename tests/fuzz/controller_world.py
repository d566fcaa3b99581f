"""Controller under fuzz: the real one on this process's loop, with its journal and its port."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias, cast

import grpc

from everstep_controller.config.controller_config import ControllerConfig
from everstep_controller.core.dispatch.core import Core
from everstep_controller.service import Controller, Options
from everstep_proto.local.client import Metadata
from everstep_proto.tls import TlsSettings, aio_channel
from fuzz.format import FormatError

_PATIENCE_S = 30.0
# Without serializers gRPC passes bytes on as they are, which its types do not say.
_Call: TypeAlias = "grpc.aio.StreamStreamCall[bytes, bytes]"
# What a caller may be told; any other code is an error that nobody expected.
_EXPECTED = frozenset(
    {
        grpc.StatusCode.OK,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INTERNAL,  # gRPC's own, for bytes that are no message
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAVAILABLE,
    }
)


@asynccontextmanager
async def controlling(folder: Path) -> AsyncIterator[grpc.aio.Channel]:
    """Run a controller; return a channel to it."""
    # At a Unix socket nothing has to be shown besides.
    address = f"unix:{folder}/c/controller.sock"
    config = ControllerConfig(
        listen=address, metrics="", journal=str(folder / "journal.sqlite"), judge_interval_s=1.0
    )
    running = Controller.open(config, Options(Core))
    await running.start()
    try:
        async with aio_channel(address, TlsSettings()) as channel:
            yield channel
    finally:
        await running.stop()


async def stream(
    channel: grpc.aio.Channel, method: str, messages: Sequence[bytes], shown: Metadata = ()
) -> int:
    """Send messages as they are on a stream, and read to its end; return how many answers came."""
    call: _Call = channel.stream_stream(method)(metadata=shown)
    count = 0
    try:
        async with asyncio.timeout(_PATIENCE_S):
            for message in messages:
                await call.write(message)
            await call.done_writing()
            while await call.read() is not grpc.aio.EOF:
                count += 1
            await _check(call)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        await _check(call)
    except TimeoutError as error:
        raise FormatError(f"the stream stood still for {_PATIENCE_S:g} s") from error
    finally:
        call.cancel()
    return count


async def ask(
    channel: grpc.aio.Channel, method: str, request: bytes, *, streams: bool, shown: Metadata = ()
) -> None:
    """Make one call with a request as it is, and read all of the answer."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            if streams:
                answers = cast("Any", channel.unary_stream(method))(request, metadata=shown)
                while await answers.read() is not grpc.aio.EOF:
                    pass
            else:
                await cast("Any", channel.unary_unary(method))(request, metadata=shown)
    except grpc.aio.AioRpcError as error:
        if error.code() not in _EXPECTED:
            raise FormatError(f"{method}: {error.code()}: {error.details()}") from error
    except TimeoutError as error:
        raise FormatError(f"{method} did not answer in {_PATIENCE_S:g} s") from error


async def _check(call: _Call) -> None:
    code = await call.code()
    if code not in _EXPECTED:
        raise FormatError(f"the stream ended with {code}: {await call.details()}")
