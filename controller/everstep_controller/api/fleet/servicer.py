"""Fleet service over gRPC: the agents' streams, read and written for a StreamHandler."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable
from dataclasses import replace
from typing import Protocol
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError

from everstep_controller.api.fleet.sessions import Session, StreamEnd
from everstep_proto.controllers import ACTIVE_ADDRESS_KEY
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import WireError
from everstep_proto.tls import Identity, IdentityError, peer_identity

_HELLO_S = 30.0
_QUICK_QUESTIONS = 5
_QUICK_S = 0.2
_SLOW_S = 10.0
BUSY_S = 0.005
# How long a stream that ends waits for an agent to take the message that is being sent to it.
_LAST_WRITE_S = 5.0

Context = grpc.aio.ServicerContext[bytes, fleet_pb2.ControllerMessage]


class StreamHandler(Protocol):
    """Handler of the agents' streams: what their messages mean is decided there."""

    async def open(self, hello: fleet_pb2.Hello, identity: Identity, address: str) -> Session:
        """Take a Hello that came from an address. Raises StreamEnd, WireError."""
        ...

    def close(self, session: Session) -> None:
        """A stream ended."""
        ...

    def handle_message(self, session: Session, message: fleet_pb2.AgentMessage) -> None:
        """Take a message. Raises StreamEnd for one after which the stream cannot go on."""
        ...

    def reject_bytes(self, session: Session, error: WireError) -> None:
        """Leave out bytes that are no message, and have it known."""
        ...

    def busy(self, session: Session) -> bool:
        """Return whether the stream should not be read on yet."""
        ...

    def ask_time(self, session: Session) -> None:
        """Ask a node for its clocks."""
        ...


class FleetServicer:
    """Parses each message itself: bytes that are none are told, and do not end their stream."""

    def __init__(self, handler: StreamHandler) -> None:
        self._handler = handler

    async def connect(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Serve one agent's stream."""
        end = await self._ended(requests, context)
        if end is not None:
            code, sentence, told = end
            await context.abort(code, sentence, trailing_metadata=told)

    async def _ended(
        self, requests: AsyncIterator[bytes], context: Context
    ) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]] | None:
        """Serve a stream; return what its agent is told of the end, if anything.

        Not raised: gRPC keeps what `abort` raises, and with it all that the errors before it know,
        a Hello of 16 MiB among that, until there is enough garbage to look for.
        """
        try:
            await self._serve(requests, context)
        except (WireError, StreamEnd) as error:
            return end_of(error)
        return None

    async def _serve(self, requests: AsyncIterator[bytes], context: Context) -> None:
        try:
            identity = replace(peer_identity(context.auth_context()), shown=context.auth_context)
        except IdentityError as error:
            raise StreamEnd(grpc.StatusCode.UNAUTHENTICATED, str(error)) from error
        address = peer_address(context.peer())
        session = await self._handler.open(await hello_of(anext(requests)), identity, address)
        writing = asyncio.Lock()
        try:
            await _first_of(
                writing,
                self._read(requests, session),
                self._write(session, context, writing),
                ask_time(self._handler, session),
            )
        finally:
            self._handler.close(session)

    async def _read(self, requests: AsyncIterator[bytes], session: Session) -> None:
        async for request in requests:
            handle_bytes(self._handler, session, request)
            while self._handler.busy(session):  # noqa: ASYNC110 - rare, and the journal is quick
                # gRPC's flow control then holds the agent back.
                await asyncio.sleep(BUSY_S)

    async def _write(self, session: Session, context: Context, writing: asyncio.Lock) -> None:
        while True:
            for message in await session.next_messages():
                async with writing:
                    await context.write(message)


def handle_bytes(handler: StreamHandler, session: Session, request: bytes) -> None:
    """Hand over what an agent said; what is no message is told, and its stream goes on."""
    try:
        message = parse_message(request)
    except WireError as error:
        handler.reject_bytes(session, error)
    else:
        handler.handle_message(session, message)


async def ask_time(handler: StreamHandler, session: Session) -> None:
    """Ask a node for its clocks as long as its stream is open."""
    for _ in range(_QUICK_QUESTIONS):
        handler.ask_time(session)
        await asyncio.sleep(_QUICK_S)
    while True:
        await asyncio.sleep(_SLOW_S)
        session.asked_ns.clear()
        handler.ask_time(session)


def end_of(error: BaseException) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]] | None:
    """Return what an agent is told of the end of its stream; None where that is nothing of ours."""
    if isinstance(error, WireError):
        return grpc.StatusCode.INVALID_ARGUMENT, str(error), ()
    if isinstance(error, StreamEnd):
        told = ((ACTIVE_ADDRESS_KEY, error.successor),) if error.successor else ()
        return error.code, error.sentence, told
    return None


def peer_address(peer: str) -> str:
    """Return the host of what gRPC says of the other end, ``ipv4:10.0.0.7:4242`` or ``unix:``."""
    kind, _, address = unquote(peer).partition(":")
    if kind == "unix":
        return "127.0.0.1"
    return address.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else peer


async def hello_of(first_message: Awaitable[bytes]) -> fleet_pb2.Hello:
    """Return the Hello that a stream begins with. Raises WireError."""
    try:
        async with asyncio.timeout(_HELLO_S):
            first = parse_message(await first_message)
    except TimeoutError as error:
        raise WireError(f"no Hello within {_HELLO_S:.0f} s") from error
    except StopAsyncIteration as error:
        raise WireError("the stream ended before its Hello") from error
    if first.WhichOneof("body") != "hello":
        raise WireError("the first message of a stream must be Hello")
    return first.hello


def parse_message(request: bytes) -> fleet_pb2.AgentMessage:
    """Return a message of an agent. Raises WireError."""
    try:
        return fleet_pb2.AgentMessage.FromString(request)
    except DecodeError as error:
        raise WireError(f"not a message: {error}") from error


async def _first_of(writing: asyncio.Lock, *parts: Coroutine[None, None, None]) -> None:
    """Run until one part ends, then end the others; raise what the first one raised.

    Not in the middle of a write: gRPC could not send how the stream ended, and it never would.
    """
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WRITE_S), writing:
                _cancel(tasks)
    finally:
        _cancel(tasks)
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if task in done:
            task.result()


def _cancel(tasks: "Iterable[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
