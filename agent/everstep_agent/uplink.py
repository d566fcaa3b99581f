"""Uplink: the agent's stream to the controller, opened again whenever it ends."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import grpc

from everstep_agent.backoff import Backoff
from everstep_agent.cluster import ClusterMembership, OtherClusterError
from everstep_agent.persistence.outbox import Outbox
from everstep_agent.supervise import first_to_end
from everstep_agent.vault_reports import VaultReports
from everstep_common.clock import StampClock
from everstep_common.orders import Halted, Ping
from everstep_common.quantities import NUMBER_MAX
from everstep_common.reports import GoingAway, Pong, TimeReply
from everstep_proto.call_failures import in_words
from everstep_proto.generated import fleet_pb2, fleet_pb2_grpc
from everstep_proto.keepalive import keepalive
from everstep_proto.local.client import LocalAccess, Metadata, NoControllerError
from everstep_proto.local.ownership import UntrustedError
from everstep_proto.message_sizes import TO_AGENT_BYTES_MAX
from everstep_proto.record_codec import WireError, from_wire, to_wire
from everstep_proto.tls import aio_channel

logger = logging.getLogger(__name__)

AgentMessage = fleet_pb2.AgentMessage
ControllerMessage = fleet_pb2.ControllerMessage

# gRPC's own retries are off: the uplink retries. Without a subchannel pool of its own a new channel
# would inherit the back-off of the one before it.
_CHANNEL_OPTIONS = (
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.max_receive_message_length", TO_AGENT_BYTES_MAX),
    # A controller whose machine vanished; one that stands still has `controller_timeout_s`, because
    # streams that it ends with all agents at once cost more than waiting for it.
    *keepalive(idle_s=20.0, timeout_s=15.0),
)
# A stream that lasted this long after its Welcome was good: retries start from scratch. A Welcome
# alone is not enough: two agents of one name would end each other's streams without any back-off.
_STEADY_S = 5.0
# How many messages that are true only for the moment (peer reports) wait; the oldest are dropped.
_URGENT_MAX = 1000


class StreamError(Exception):
    """The stream to the controller ended or could not be opened; one sentence says why."""

    def __init__(self, sentence: str, *, refused: bool = False) -> None:
        super().__init__(sentence)
        # The controller does not take this agent until somebody has changed something.
        self.refused = refused


_STREAM_ERRORS = (
    grpc.RpcError,
    asyncio.InvalidStateError,
    StreamError,
    OtherClusterError,
    UntrustedError,
    OSError,
)


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
    """Where the controller is, by what it is known, and how long it may take or be silent."""

    access: LocalAccess
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
        self._cluster = cluster or ClusterMembership()
        self._outbox = outbox
        self._stamp = stamp
        self._backoff = backoff
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
        # Why the last stream ended, or could not be opened; and whether that was because the
        # controller does not take this agent.
        self.trouble, self.refused = "", False
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
        said, loop = "", asyncio.get_running_loop()
        self._away_since_s = loop.time()
        while not self._leaving:
            try:
                await self._stream(hello(), listener)
            except StreamError as error:
                self.trouble, self.refused = str(error), error.refused
                if str(error) != said and not (self._renewal.is_set() or self._leaving):
                    said = str(error)
                    logger.warning("controller %s: %s", self._settings.access.address, said)
            finally:
                good = self.connected and loop.time() - self._welcomed_s > _STEADY_S
                left, self.connected = self._guided, False
                self._lose_guidance()
            # Not where the agent ends: then nobody is left to look again.
            if left:
                listener.on_away()
            if good:
                said = ""
                self._backoff.reset()
            if not self._renewal.is_set() and not self._leaving:
                wait_s = self._backoff.refused_s() if self.refused else self._backoff.next_s()
                await asyncio.sleep(wait_s)
            self._renewal.clear()
        self._left.set()
        await asyncio.Event().wait()

    async def _stream(self, hello: fleet_pb2.Hello, listener: Listener) -> None:
        """Run one stream to its end, which is always a StreamError."""
        access = self._settings.access
        try:
            access.check_socket()
        except NoControllerError as error:
            raise StreamError("nobody listens there (no such socket)") from error
        except UntrustedError as error:
            raise StreamError(str(error)) from error
        async with aio_channel(access.address, access.tls, _CHANNEL_OPTIONS) as channel:
            call = fleet_pb2_grpc.FleetStub(channel).Connect(metadata=await self._shown(channel))
            try:
                await self._greet(call, hello, listener)
                await first_to_end(
                    self._send(call), self._receive(call, listener), self._until_renewal()
                )
            except _STREAM_ERRORS as error:
                refused = isinstance(error, OtherClusterError) or await _is_refusal(call)
                raise StreamError(await _reason(call, error), refused=refused) from error
            finally:
                call.cancel()

    async def _shown(self, channel: grpc.aio.Channel) -> Metadata:
        """Return what the controller is shown, once it is known whose process it is."""
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                return await self._settings.access.aio_metadata(channel)
        except TimeoutError as error:
            raise StreamError("it does not answer (no connection)") from error
        except grpc.aio.AioRpcError as error:
            raise StreamError(in_words(error.code().name, error.details() or "")) from error
        except UntrustedError as error:
            raise StreamError(str(error)) from error

    async def _greet(self, call: "_Call", hello: fleet_pb2.Hello, listener: Listener) -> None:
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                await call.write(AgentMessage(hello=hello))
                first = await call.read()
                await self._settings.access.check_again()
        except TimeoutError as error:
            raise StreamError("it does not answer (no word after Hello)") from error
        if not isinstance(first, ControllerMessage) or not first.HasField("welcome"):
            raise StreamError("the first answer was not Welcome")
        if first.welcome.acknowledged > NUMBER_MAX:
            raise StreamError(f"it acknowledges record {first.welcome.acknowledged}")
        self._cluster.join(first.welcome.cluster_id)
        logger.info("connected to the controller, term %d", first.welcome.term)
        listener.on_welcome(first.welcome, self._begin(first.welcome))

    def _begin(self, welcome: fleet_pb2.Welcome) -> bool:
        self._outbox.rewind()
        forgotten = self._outbox.welcome(welcome.acknowledged)
        self._urgent.clear()
        self._vault.begin()
        self._kernel_is_new = True
        self.connected, self.refused, self.halted = True, False, ""
        self._guided = not welcome.halted
        self._heard_s = self._welcomed_s = asyncio.get_running_loop().time()
        self.streams += 1
        self._wake.set()
        return forgotten

    async def _receive(self, call: "_Call", listener: Listener) -> None:
        while True:
            try:
                async with asyncio.timeout(self._settings.silence_s):
                    message = await call.read()
            except TimeoutError as error:
                silent = f"it has been silent for {self._settings.silence_s:g} s"
                raise StreamError(silent) from error
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

    async def _send(self, call: "_Call") -> None:
        while not self._leaving:
            await self._wake.wait()
            self._wake.clear()
            while not self._leaving and (message := self._next()) is not None:
                try:
                    async with asyncio.timeout(self._settings.connect_timeout_s):
                        await call.write(message)
                except TimeoutError as error:
                    raise StreamError("it takes no more messages") from error
        going = to_wire(GoingAway(self._leaving), fleet_pb2.GoingAway)
        await call.write(AgentMessage(going_away=going))
        # Not cancelled: a controller that is told so at once may drop what it has not read yet. It
        # ends the stream when it has, which whoever reads is told.
        await call.done_writing()
        await asyncio.Event().wait()

    async def _until_renewal(self) -> None:
        # Not by call.cancel(): gRPC would cancel whoever reads, which looks like our own end.
        await self._renewal.wait()
        raise StreamError("Hello would say something else now")

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


_Call = grpc.aio.StreamStreamCall[AgentMessage, ControllerMessage]


async def _is_refusal(call: "_Call") -> bool:
    """Return whether the controller has ended a stream because it does not take its agent."""
    return call.done() and await call.code() is grpc.StatusCode.FAILED_PRECONDITION


async def _reason(call: "_Call", error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
            return error.details() or "it does not take this agent"
        logger.debug("gRPC's own words: %s: %s", error.code().name, error.details())
        return in_words(error.code().name, error.details() or "")
    if isinstance(error, asyncio.InvalidStateError) and call.done():
        # A message was just being sent to a controller that has said why it ends the stream.
        code = await call.code()
        return in_words(code.name, await call.details() or "")
    if isinstance(error, grpc.RpcError | asyncio.InvalidStateError):
        return f"the stream ended ({type(error).__name__})"
    return str(error) or type(error).__name__
