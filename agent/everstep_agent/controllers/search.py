"""Search for a controller: asks one address after the other for a stream, as the choice says.

A question stays open while another controller is asked: the first that says Welcome serves. So one
that is only busy is not left for nothing, and one that is stopped delays nobody.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import grpc

from everstep_agent.controllers.choice import Answer, ControllerChoice, Failure
from everstep_agent.controllers.opening import OpenStream, StreamError, StreamOpener, check_socket
from everstep_proto.generated import fleet_pb2
from everstep_proto.local.client import LocalAccess

# How long the connection to a standby serves for further questions: a handshake costs it more than
# a question, and a new connection shows the certificate that the files have by then.
_KEPT_S = 60.0

_Question: TypeAlias = "asyncio.Task[OpenStream]"


@dataclass
class ControllerSearch:
    """Asks the controllers of a cluster until one of them serves this agent."""

    accesses: Mapping[str, LocalAccess]
    choice: ControllerChoice
    opener: StreamOpener
    # Hears of each question that has brought no stream.
    note: Callable[[str, StreamError], None]
    # Connections to standbys, and since when they are there.
    _kept: dict[str, tuple[grpc.aio.Channel, float]] = field(default_factory=dict)

    async def find(self, hello: Callable[[], fleet_pb2.Hello]) -> OpenStream:
        """Return a stream on which a controller has said Welcome; never the one that serves."""
        open_questions: dict[_Question, str] = {}
        try:
            while True:
                step = self.choice.next(_now_s())
                if step.address:
                    asking = self._ask(step.address, hello)
                    open_questions[asyncio.create_task(asking)] = step.address
                    continue
                await _first_answer(open_questions, step.at_s)
                answered = [one for one in open_questions if one.done()]
                found = [await self._found(open_questions.pop(one), one) for one in answered]
                if streams := [one for one in found if one is not None]:
                    return await _newest(streams)
        finally:
            await self._abandon(open_questions)

    async def close_kept(self) -> None:
        """End the connections to standbys: nobody is to be asked soon."""
        while self._kept:
            _, (channel, _) = self._kept.popitem()
            await channel.close()

    async def _ask(self, address: str, hello: Callable[[], fleet_pb2.Hello]) -> OpenStream:
        access = self.accesses[address]
        check_socket(access)
        channel, since_s = await self._channel(access)
        try:
            return await self.opener.open(access, channel, hello())
        except StreamError as error:
            if error.failure.answer is Answer.STANDBY:
                self._kept[address] = channel, since_s
            else:
                await channel.close()
            raise
        except BaseException:
            await channel.close()
            raise

    async def _channel(self, access: LocalAccess) -> tuple[grpc.aio.Channel, float]:
        channel, since_s = self._kept.pop(access.address, (None, 0.0))
        if channel is not None and _now_s() - since_s < _KEPT_S:
            return channel, since_s
        if channel is not None:
            await channel.close()
        return self.opener.channel(access), _now_s()

    async def _found(self, address: str, question: _Question) -> OpenStream | None:
        """Return the stream that a question has brought, if it is one to use."""
        if question.cancelled():  # by gRPC, and by nobody else
            self._note(address, StreamError("the call was broken off"))
            return None
        try:
            found = question.result()
        except StreamError as error:
            self._note(address, error)
            return None
        if not found.is_outdated or self.choice.takes_outdated(address):
            return found
        await found.close()
        outdated = (
            f"its term is {found.welcome.term}, and this node has heard of "
            f"{found.hello.highest_term}: another one has taken over"
        )
        self._note(address, StreamError(outdated, Failure(Answer.OUTDATED)))
        return None

    def _note(self, address: str, error: StreamError) -> None:
        self.choice.failed(address, error.failure, _now_s())
        self.note(address, error)

    async def _abandon(self, open_questions: dict[_Question, str]) -> None:
        for question, address in open_questions.items():
            question.cancel()
            self.choice.abandoned(address)
        for one in await asyncio.gather(*open_questions, return_exceptions=True):
            if isinstance(one, OpenStream):
                await one.close()


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def _first_answer(open_questions: dict[_Question, str], at_s: float | None) -> None:
    """Wait for an answer, or until a time."""
    wait_s = None if at_s is None else max(0.0, at_s - _now_s())
    if open_questions:
        await asyncio.wait(open_questions, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    else:
        await asyncio.sleep(0.0 if wait_s is None else wait_s)


async def _newest(streams: Sequence[OpenStream]) -> OpenStream:
    """Return the stream to the controller with the highest term; end the others."""
    newest = max(streams, key=lambda one: one.welcome.term)
    for other in streams:
        if other is not newest:
            await other.close()
    return newest
