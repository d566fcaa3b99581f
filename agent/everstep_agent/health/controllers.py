"""Controllers as a node sees them: which of its configuration answer, and which is active."""

import asyncio
from collections.abc import Sequence

import grpc

from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.controllers.choice import Answer
from everstep_agent.controllers.opening import STREAM_ERRORS, check_socket, stream_error
from everstep_common.config import ConfigError
from everstep_proto.call_failures import in_words
from everstep_proto.generated import fleet_pb2_grpc
from everstep_proto.local.client import LocalAccess
from everstep_proto.tls import aio_channel

_EACH_S = 5.0
_ACTIVE = "it answers, and is active"


async def controller_notes(config: AgentConfig, within_s: float) -> tuple[str, ...]:
    """Return a sentence for each controller, and one more where none is active."""
    accesses = [
        LocalAccess(address=address, tls=config.tls, secret_file=config.secret_file)
        for address in config.controllers
    ]
    each = await asyncio.gather(*(_said(one, min(_EACH_S, within_s)) for one in accesses))
    notes = [
        f"controller {access.address}: {said}" for access, said in zip(accesses, each, strict=True)
    ]
    return (*notes, *_judged(each))


def _judged(each: Sequence[str]) -> Sequence[str]:
    active = list(each).count(_ACTIVE)
    if active == 1:
        return ()
    if not active:
        return ["no controller is active, as far as this node can tell"]
    return ["more than one controller says that it is active: they are not of one cluster"]


async def _said(access: LocalAccess, within_s: float) -> str:
    try:
        async with asyncio.timeout(within_s):
            check_socket(access)
            async with aio_channel(access.address, access.tls) as channel:
                return await _asked(access, channel)
    except TimeoutError:
        return f"it does not answer within {within_s:g} s"
    except ConfigError as error:
        return f"it cannot be asked by this user: {'; '.join(error.problems)}"
    except grpc.aio.AioRpcError as error:
        return in_words(error.code().name, error.details() or "")
    except STREAM_ERRORS as error:
        return str(error) or type(error).__name__


async def _asked(access: LocalAccess, channel: grpc.aio.Channel) -> str:
    """Open a stream that ends before its Hello: it disturbs no agent, and no node is taken."""
    metadata = await access.aio_metadata(channel)
    call = fleet_pb2_grpc.FleetStub(channel).Connect(metadata=metadata)
    try:
        await call.done_writing()
        await call.read()
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
            return _ACTIVE
        failed = await stream_error(call, error)
        if failed.failure.answer is Answer.STANDBY:
            active = failed.failure.active or "not known to it"
            return f"it is a standby; the active one is {active}"
        return str(failed)
    finally:
        call.cancel()
    return "it answers with what no controller of this version says"
