"""Uplink: the agent's stream to the controller, opened again whenever it ends."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from everstep_agent.backoff import Backoff
from everstep_agent.cluster import ClusterMembership
from everstep_agent.concurrency.common_tick import tick
from everstep_agent.controllers.choice import (
    Answer,
    ControllerChoice,
    Failure,
    StallWatch,
)
from everstep_agent.controllers.opening import (
    STREAM_ERRORS,
    Call,
    OpenStream,
    StreamError,
    StreamOpener,
    stream_error,
)
from everstep_agent.controllers.search import ControllerSearch
from everstep_agent.persistence.outbox import Outbox
from everstep_agent.supervise import first_to_end
from everstep_agent.vault_reports import VaultReports
from everstep_common.clock import StampClock
from everstep_common.orders import Halted, Ping
from everstep_common.quantities import NUMBER_MAX
from everstep_common.reports import GoingAway, Pong, TimeReply
from everstep_proto.generated import fleet_pb2
from everstep_proto.local.client import LocalAccess
from everstep_proto.record_codec import WireError, from_wire, to_wire

logger = logging.getLogger(__name__)

AgentMessage = fleet_pb2.AgentMessage
ControllerMessage = fleet_pb2.ControllerMessage

# A stream that lasted this long after its Welcome was good: retries start from scratch. A Welcome
# alone is not enough: two agents of one name would end each other's streams without any back-off.
_STEADY_S = 5.0
# How many messages that are true only for the moment (peer reports) wait; the oldest are dropped.
_URGENT_MAX = 1000
# How often an agent with several controllers looks whether the one that serves it acknowledges.
_LOOK_S = 1.0


class Listener(Protocol):
    """Receiver of what the controller says."""

    def on_welcome(self, welcome: fleet_pb2.Welcome, forgotten: bool) -> None:
        """Take a new stream into use; ``forgotten``: records that were acknowledged are lost."""
        ...

    def on_message(self, message: fleet_pb2.ControllerMessage) -> None:
        """Take an order, a peer list, a question about a peer, or a vault directive."""
        ...

    def on_halted(self) -> None:
        """The controller acts on nothing, and has said why."""
        ...

    def on_away(self) -> None:
        """No controller acts for this agent any more: look again without its word."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UplinkSettings:
    """Where controllers are, by what they are known, how long one may take or be silent."""

    # One at least; where there are more, one of them is active.
    controllers: tuple[LocalAccess, ...]
    connect_timeout_s: float
    silence_s: float


class Uplink:
    """Keeps one stream open and sends urgent words, records, vault reports and samples, in turn."""

    def __init__(
        self,
        settings: UplinkSettings,
        outbox: Outbox,
        stamp: StampClock,
        backoff: Backoff,
        cluster: ClusterMembership | None = None,
    ) -> None:
        self._settings = settings
        addresses = [access.address for access in settings.controllers]
        self._chance = backoff.chance
        self._choice = ControllerChoice(addresses, backoff.another, backoff.chance)
        opener = StreamOpener(
            cluster=cluster or ClusterMembership(),
            connect_timeout_s=settings.connect_timeout_s,
            alone=len(addresses) == 1,
        )
        accesses = dict(zip(addresses, settings.controllers, strict=True))
        self._search = ControllerSearch(accesses, self._choice, opener, self._note)
        # A stream to another controller, which takes the place of the one that is there.
        self._found: OpenStream | None = None
        self._outbox = outbox
        self._stamp = stamp
        self._urgent: deque[AgentMessage] = deque(maxlen=_URGENT_MAX)
        self._vault = VaultReports()
        self._samples: fleet_pb2.SampleBatch | None = None
        self._kernel: fleet_pb2.KernelMessages | None = None
        self._kernel_is_new = False
        self._wake = asyncio.Event()
        self._renewal = asyncio.Event()
        # Why the agent ends; then it opens no stream any more.
        self._leaving = ""
        self._left = asyncio.Event()
        self.connected = False
        # The controller of the newest stream.
        self.address = addresses[0]
        # Why there is no stream to each controller, since one was there last; what of it is logged.
        self._troubles: dict[str, StreamError] = {}
        self._logged: dict[str, str] = {}
        self.streams = 0
        # What the controller said last of failed prolog scripts, and when it came (Unix time in
        # ns); None before its first word.
        self.budget_answer: tuple[str, int] | None = None
        # Since when no controller acts for this agent: it is away, or says that it is halted.
        self._away_since_s: float | None = None
        self._heard_s = self._welcomed_s = 0.0
        # Why the controller acts on nothing; "" while it does, and while there is no stream.
        self.halted = ""
        # A controller is connected that acts.
        self._guided = False
        outbox.on_record(self._wake.set)

    def vault_report(self, report: fleet_pb2.VaultReport) -> None:
        """See Outlet."""
        self._vault.put(report)
        self._wake.set()

    def samples(self, batch: fleet_pb2.SampleBatch) -> None:
        """Send a batch if the stream is open; otherwise the next one replaces it."""
        self._samples = batch
        self._wake.set()

    def kernel_messages(self, messages: fleet_pb2.KernelMessages) -> None:
        """Send these now, and at the beginning of every stream, until there are others."""
        self._kernel, self._kernel_is_new = messages, True
        self._wake.set()

    def say(self, message: AgentMessage) -> None:
        """Send a word that is worth nothing later; dropped while there is no stream."""
        if self.connected:
            self._urgent.append(message)
            self._wake.set()

    def renew(self) -> None:
        """Open a new stream soon, because Hello would say something else now."""
        if self.connected:
            self._renewal.set()

    def renew_if_halted(self) -> None:
        """Say Hello anew to a controller that takes nothing else: it may rebuild its journal."""
        if self.connected and not self._guided:
            self._renewal.set()

    def away_s(self) -> float:
        """Return for how many seconds no controller has been there that acts; 0 while one is."""
        if self._guided or self._away_since_s is None:
            return 0.0
        return asyncio.get_running_loop().time() - self._away_since_s

    def quiet_s(self) -> float:
        """Return for how many seconds the controller has said nothing."""
        return asyncio.get_running_loop().time() - self._heard_s

    @property
    def trouble(self) -> str:
        """Return why the last stream ended, or none can be opened; "" where nobody has answered."""
        if len(self._settings.controllers) == 1:
            return "".join(map(str, self._troubles.values()))
        return "; ".join(f"{address}: {error}" for address, error in self._troubles.items())

    @property
    def refused(self) -> bool:
        """Return whether a controller has said that it does not take this agent."""
        answers = [error.failure.answer for error in self._troubles.values()]
        return Answer.REFUSED in answers

    async def leave(self, reason: str, within_s: float) -> None:
        """Tell the controller that the agent ends, and end the stream; give up after a time."""
        if not self.connected:
            return
        self._leaving = reason
        self._wake.set()
        try:
            async with asyncio.timeout(within_s):
                await self._left.wait()
        except TimeoutError:
            logger.warning("the controller did not hear within %g s that this agent ends", within_s)

    async def run(self, hello: Callable[[], fleet_pb2.Hello], listener: Listener) -> None:
        """Keep a stream open until cancelled."""
        self._away_since_s = asyncio.get_running_loop().time()
        try:
            while not self._leaving:
                stream = self._found or await self._search.find(hello)
                self._found = None
                await self._serve(stream, hello, listener)
        finally:
            await self._search.close_kept()
            found, self._found = self._found, None
            if found is not None:
                await found.close()
        self._left.set()
        await asyncio.Event().wait()

    async def _serve(
        self, stream: OpenStream, hello: Callable[[], fleet_pb2.Hello], listener: Listener
    ) -> None:
        """Run a stream to its end, and remember why it ended."""
        loop, failure = asyncio.get_running_loop(), Failure(Answer.GONE)
        self._choice.welcomed(stream.address, stream.welcome.fleet_nodes)
        try:
            await self._converse(stream, hello, listener)
        except StreamError as error:
            failure = error.failure
            self._note(stream.address, error)
        finally:
            good = self.connected and loop.time() - self._welcomed_s > _STEADY_S
            left, self.connected = self._guided, False
            self._lose_guidance()
            self._choice.lost(failure, loop.time(), good=good)
            await stream.close()
        # Not where the agent ends: then nobody is left to look again.
        if left:
            listener.on_away()
        if good:
            self._logged.clear()
        self._renewal.clear()

    async def _converse(
        self, stream: OpenStream, hello: Callable[[], fleet_pb2.Hello], listener: Listener
    ) -> None:
        """Send and receive until the stream ends, which is always a StreamError."""
        welcome, call = stream.welcome, stream.call
        at = "" if len(self._settings.controllers) == 1 else f" at {stream.address}"
        logger.info("connected to the controller%s, term %d", at, welcome.term)
        self.address = stream.address
        await self._search.close_kept()
        listener.on_welcome(welcome, self._begin(welcome))
        try:
            await first_to_end(
                self._send(call),
                self._receive(call, listener),
                self._until_renewal(),
                self._until_another(stream, hello),
            )
        except STREAM_ERRORS as error:
            raise await stream_error(call, error) from error

    def _note(self, address: str, error: StreamError) -> None:
        """Remember why there is no stream to a controller, and log it when it is new."""
        self._troubles[address] = error
        sentence, answer = str(error), error.failure.answer
        if answer is Answer.RENEWED or self._leaving or self._logged.get(address) == sentence:
            return
        self._logged[address] = sentence
        if answer is Answer.STANDBY:  # where another one is active, that is as it should be
            logger.info("controller %s: %s", address, sentence)
        else:
            logger.warning("controller %s: %s", address, sentence)
        active = error.failure.active
        if active and not self._choice.is_known(active):
            logger.warning(
                "controller %s names %s as the active one, which is not among those of "
                "'controller' in this agent's configuration: it is not asked; add it there",
                address,
                active,
            )

    async def _until_another(
        self, stream: OpenStream, hello: Callable[[], fleet_pb2.Hello]
    ) -> None:
        """While the controller is to be doubted, look for another one that serves this agent.

        The stream stays open meanwhile: of a controller that is only slow nothing is lost, and a
        fleet that left it would cost it more than what it is slow with.
        """
        if len(self._settings.controllers) == 1:
            await asyncio.Event().wait()
        watch = StallWatch(self._chance, self._choice.crowd_s)
        while True:
            await tick(_LOOK_S)
            if not self._is_doubted(stream, watch):
                continue
            searching = asyncio.create_task(self._search.find(hello))
            try:
                while self._is_doubted(stream, watch) and not searching.done():
                    await asyncio.wait([searching], timeout=_LOOK_S)
            finally:
                self._found = await _ended(searching)
            if self._found is not None:
                raise StreamError(f"{self._found.address} serves in its place")
            await self._search.close_kept()

    def _is_doubted(self, stream: OpenStream, watch: StallWatch) -> bool:
        now_s = asyncio.get_running_loop().time()
        waiting = self._outbox.first_unacknowledged
        return watch.is_stalled(waiting, self.quiet_s(), now_s) or stream.is_outdated

    def _begin(self, welcome: fleet_pb2.Welcome) -> bool:
        self._outbox.rewind()
        forgotten = self._outbox.welcome(welcome.acknowledged)
        self._urgent.clear()
        self._vault.begin()
        self._kernel_is_new = True
        self._troubles.clear()
        self.connected, self.halted = True, ""
        self._guided = not welcome.halted
        self._heard_s = self._welcomed_s = asyncio.get_running_loop().time()
        self.streams += 1
        self._wake.set()
        return forgotten

    async def _receive(self, call: Call, listener: Listener) -> None:
        while True:
            try:
                async with asyncio.timeout(self._settings.silence_s):
                    message = await call.read()
            except TimeoutError as error:
                silent = f"it has been silent for {self._settings.silence_s:g} s"
                raise StreamError(silent, Failure(Answer.SILENT)) from error
            if not isinstance(message, ControllerMessage):
                raise StreamError("it ended the stream")
            self._heard_s = asyncio.get_running_loop().time()
            self._take(message, listener)

    def _take(self, message: ControllerMessage, listener: Listener) -> None:
        kind = message.WhichOneof("body")
        if kind == "ack":
            self._outbox.acknowledge(min(message.ack.sequence, NUMBER_MAX))
        elif kind == "time_request":
            now = self._stamp()
            self.budget_answer = message.time_request.budget_exceeded, now.wall_ns
            reply = TimeReply(message.time_request.sent_ns, now)
            self._say_first(AgentMessage(time_reply=to_wire(reply, fleet_pb2.TimeReply)))
        elif kind == "ping":
            self._pong(message.ping)
        elif kind == "halted":
            self._halt(message.halted, listener)
        else:
            listener.on_message(message)

    def _pong(self, message: fleet_pb2.Ping) -> None:
        try:
            pong = Pong(from_wire(Ping, message).ping_id)
        except WireError as error:
            logger.warning("ignored: ping of the controller: %s", error)
        else:
            self._say_first(AgentMessage(pong=to_wire(pong, fleet_pb2.Pong)))

    def _halt(self, message: fleet_pb2.Halted, listener: Listener) -> None:
        try:
            self.halted = from_wire(Halted, message).reason
        except WireError as error:
            logger.warning("ignored: word of a halt: %s", error)
        else:
            logger.warning("the controller acts on nothing: %s", self.halted)
            listener.on_halted()
            if self._guided:
                self._lose_guidance()
                listener.on_away()

    def _lose_guidance(self) -> None:
        """From now on no controller acts; where none did before, that lasts on."""
        if self._guided:
            self._guided, self._away_since_s = False, asyncio.get_running_loop().time()

    def _say_first(self, message: AgentMessage) -> None:
        self._urgent.appendleft(message)
        self._wake.set()

    async def _send(self, call: Call) -> None:
        while not self._leaving:
            await self._wake.wait()
            self._wake.clear()
            while not self._leaving and (message := self._next()) is not None:
                try:
                    async with asyncio.timeout(self._settings.connect_timeout_s):
                        await call.write(message)
                except TimeoutError as error:
                    silent = Failure(Answer.SILENT)
                    raise StreamError("it takes no more messages", silent) from error
        going = to_wire(GoingAway(self._leaving), fleet_pb2.GoingAway)
        await call.write(AgentMessage(going_away=going))
        # Not cancelled: a controller that is told so at once may drop what it has not read yet. It
        # ends the stream when it has, which whoever reads is told.
        await call.done_writing()
        await asyncio.Event().wait()

    async def _until_renewal(self) -> None:
        # Not by call.cancel(): gRPC would cancel whoever reads, which looks like our own end.
        await self._renewal.wait()
        raise StreamError("Hello would say something else now", Failure(Answer.RENEWED))

    def _next(self) -> AgentMessage | None:
        if self._urgent:
            return self._urgent.popleft()
        if record := self._outbox.pop_unsent():
            return AgentMessage(record=record)
        if report := self._vault.pop_next():
            return AgentMessage(vault=report)
        if self._kernel and self._kernel_is_new:
            self._kernel_is_new = False
            return AgentMessage(kernel=self._kernel)
        batch, self._samples = self._samples, None
        return AgentMessage(samples=batch) if batch else None


async def _ended(searching: "asyncio.Task[OpenStream]") -> OpenStream | None:
    """End a search; return what it has found by then."""
    searching.cancel()
    (found,) = await asyncio.gather(searching, return_exceptions=True)
    if isinstance(found, Exception):
        raise found
    return found if isinstance(found, OpenStream) else None
