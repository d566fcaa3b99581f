"""Opening of a stream to a controller, and why there is none, or none any more, as a sentence."""

import asyncio
import logging
from dataclasses import dataclass, field

import grpc

from everstep_agent.cluster import ClusterMembership, OtherClusterError
from everstep_agent.controllers.choice import Answer, Failure
from everstep_common.quantities import NUMBER_MAX
from everstep_proto.call_failures import in_words
from everstep_proto.controllers import named_active
from everstep_proto.generated import fleet_pb2, fleet_pb2_grpc
from everstep_proto.keepalive import SHORTEST_IDLE_S, keepalive
from everstep_proto.local.client import LocalAccess, Metadata, NoControllerError
from everstep_proto.local.ownership import UntrustedError
from everstep_proto.message_sizes import TO_AGENT_BYTES_MAX
from everstep_proto.tls import ChannelOptions, aio_channel

logger = logging.getLogger(__name__)

AgentMessage = fleet_pb2.AgentMessage
ControllerMessage = fleet_pb2.ControllerMessage
Call = grpc.aio.StreamStreamCall[AgentMessage, ControllerMessage]

# gRPC's own retries are off: the agent retries. Without a subchannel pool of its own a new channel
# would inherit the back-off of the one before it.
_OPTIONS: ChannelOptions = (
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.max_receive_message_length", TO_AGENT_BYTES_MAX),
)
# A controller whose machine vanished; one that stands still has `controller_timeout_s`, because
# streams that it ends with all agents at once cost more than waiting for it.
_ALONE: ChannelOptions = (*_OPTIONS, *keepalive(idle_s=20.0, timeout_s=15.0))
# Where another one may have taken over. A lease is not taken over sooner than this, so that a
# machine that was paused for less still has its agents. The second option: pings are not held back
# on a connection on which the agent has nothing to send.
_ONE_OF_SEVERAL: ChannelOptions = (
    *_OPTIONS,
    *keepalive(idle_s=SHORTEST_IDLE_S, timeout_s=3.0),
    ("grpc.http2.max_pings_without_data", 0),
)


class StreamError(Exception):
    """The stream to the controller ended or could not be opened; one sentence says why."""

    def __init__(self, sentence: str, failure: Failure | None = None) -> None:
        super().__init__(sentence)
        self.failure = failure or Failure(Answer.GONE)


STREAM_ERRORS = (
    grpc.RpcError,
    asyncio.InvalidStateError,
    StreamError,
    OtherClusterError,
    UntrustedError,
    OSError,
)


@dataclass(frozen=True, slots=True)
class OpenStream:
    """A stream on which a controller has said Welcome."""

    address: str
    channel: grpc.aio.Channel = field(repr=False)
    call: Call = field(repr=False)
    welcome: fleet_pb2.Welcome
    # The agent's own word, at which the controller has said it.
    hello: fleet_pb2.Hello = field(repr=False)

    @property
    def is_outdated(self) -> bool:
        """Return whether the agent has seen a newer term than that of this controller."""
        return self.welcome.term < self.hello.highest_term

    async def close(self) -> None:
        """End it."""
        self.call.cancel()
        await self.channel.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOpener:
    """Opens streams to the controllers of one cluster."""

    cluster: ClusterMembership
    connect_timeout_s: float
    alone: bool

    def channel(self, access: LocalAccess) -> grpc.aio.Channel:
        """Return a channel to a controller; a new one reads the certificate anew."""
        options = _ALONE if self.alone else _ONE_OF_SEVERAL
        return aio_channel(access.address, access.tls, options)

    async def open(
        self, access: LocalAccess, channel: grpc.aio.Channel, hello: fleet_pb2.Hello
    ) -> OpenStream:
        """Say Hello on a channel, and wait for Welcome. Raises StreamError."""
        call = fleet_pb2_grpc.FleetStub(channel).Connect(
            metadata=await self._shown(access, channel)
        )
        try:
            welcome = await self._greet(access, call, hello)
        except STREAM_ERRORS as error:
            call.cancel()
            raise await stream_error(call, error) from error
        except BaseException:
            call.cancel()
            raise
        return OpenStream(access.address, channel, call, welcome, hello)

    async def _shown(self, access: LocalAccess, channel: grpc.aio.Channel) -> Metadata:
        """Return what the controller is shown, once it is known whose process it is."""
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                return await access.aio_metadata(channel)
        except TimeoutError as error:
            raise _silent("it does not answer (no connection)") from error
        except grpc.aio.AioRpcError as error:
            raise StreamError(in_words(error.code().name, error.details() or "")) from error
        except UntrustedError as error:
            raise StreamError(str(error)) from error

    async def _greet(
        self, access: LocalAccess, call: Call, hello: fleet_pb2.Hello
    ) -> fleet_pb2.Welcome:
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                await call.write(AgentMessage(hello=hello))
                first = await call.read()
                await access.check_again()
        except TimeoutError as error:
            raise _silent("it does not answer (no word after Hello)") from error
        if not isinstance(first, ControllerMessage) or not first.HasField("welcome"):
            raise StreamError("the first answer was not Welcome")
        if first.welcome.acknowledged > NUMBER_MAX:
            raise StreamError(f"it acknowledges record {first.welcome.acknowledged}")
        self.cluster.join(first.welcome.cluster_id)
        return first.welcome


def check_socket(access: LocalAccess) -> None:
    """Look at a Unix socket before it is connected to. Raises StreamError."""
    try:
        access.check_socket()
    except NoControllerError as error:
        raise StreamError("nobody listens there (no such socket)") from error
    except UntrustedError as error:
        raise StreamError(str(error)) from error


def _silent(sentence: str) -> StreamError:
    return StreamError(sentence, Failure(Answer.SILENT))


async def stream_error(call: Call, error: BaseException) -> StreamError:
    """Return why a stream has ended, or was never opened."""
    if isinstance(error, StreamError) and error.failure.answer is not Answer.GONE:
        return error
    code = await call.code() if call.done() else None
    if isinstance(error, OtherClusterError) or code is grpc.StatusCode.FAILED_PRECONDITION:
        return StreamError(await _reason(call, error), Failure(Answer.REFUSED))
    if code is grpc.StatusCode.UNAVAILABLE and (active := await _named_active(call)) is not None:
        sentence = await call.details() or "it is a standby"
        return StreamError(sentence, Failure(Answer.STANDBY, active))
    sentence = await _reason(call, error)
    # The transport's own pings: no answer came in time.
    silent = sentence.startswith("it does not answer")
    return StreamError(sentence, Failure(Answer.SILENT if silent else Answer.GONE))


async def _named_active(call: Call) -> str | None:
    metadata = await call.trailing_metadata()
    return named_active(tuple(metadata) if metadata else ())


async def _reason(call: Call, error: BaseException) -> str:
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
