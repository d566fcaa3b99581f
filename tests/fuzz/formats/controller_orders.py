"""Messages of the controller to an agent: orders and directives, to the jobs that they move."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from google.protobuf.message import DecodeError

from everstep_agent.liveness import Liveness
from everstep_agent.orders import CheckResult, Orders, OrderTargets, TermGate
from everstep_common.orders import ConfirmPeer, PeerList, RunPairTest
from everstep_proto.generated import fleet_pb2
from fuzz.choices import Choices, option
from fuzz.format import Format, Handler
from fuzz.node_world import JOB, JOB_ID, KEY, Outlet, training
from fuzz.shapes import Known
from fuzz.wire_messages import encoded, message_maker

_MESSAGES_MAX = 6
_KNOWN: Known = {
    "node": option("node-2", "node-1", "node-3"),
    "job": option(JOB, JOB, "other"),
    "job_id": option(JOB_ID, JOB_ID, "other-2", ""),
    "lineage_id": option(JOB_ID, JOB_ID, "other-2", ""),
    "term": option(1),
    "order_id": option("o-1", "o-2", "o-3"),
    "generation": option(1, 2, 3),
    "rank": option(0, 1, 2, 3),
    "first_rank": option(0),
    "node_count": option(1, 2),
    "processes": option(4, 1),
    "world_size": option(4, 1),
    "step": option(*range(8)),
    "restore_step": option(*range(8)),
    "transfer_key": option(KEY),
    "bulk_address": option("127.0.0.1:1"),
    "replica_bulk_address": option("127.0.0.1:1"),
    "replica_sources": option("127.0.0.1:1"),
    "liveness_address": option("127.0.0.1:2"),
    "address": option("127.0.0.1:2"),
    "size_bytes": option(4096, 0, 1),
    "bytes": option(4096),
    "grace_ns": option(0, 10**6),
    "master_address": option("127.0.0.1"),
}
_MESSAGE = message_maker(fleet_pb2.ControllerMessage.DESCRIPTOR, _KNOWN)
_ORDER = message_maker(fleet_pb2.Order.DESCRIPTOR, _KNOWN)


class _Injections:
    """Injector that makes nothing: an operator's faults are no part of the format."""

    def order(self, name: str, text: str, duration_s: float) -> None:
        """See Injections."""

    def clear(self, name: str) -> None:
        """See Injections."""


class _PairTests:
    """Does no work: how long that takes is no part of the format."""

    def order(self, wanted: RunPairTest) -> None:
        """See PairTests."""

    def cancel(self, why: str) -> None:
        """See PairTests."""


class _Peers:
    """Watches peers as the agent does, but asks no network about one of them."""

    def __init__(self) -> None:
        self._liveness = Liveness("node-1", lambda _: None)

    def watch(self, peers: PeerList) -> None:
        """See Peers."""
        self._liveness.watch(peers)

    def confirm(self, question: ConfirmPeer) -> None:
        """See Peers."""

    def tell_again(self) -> None:
        """See Peers."""


async def _check() -> CheckResult:
    return CheckResult(True, "nothing fatal")


def _make(choices: Choices) -> tuple[bytes, ...]:
    return tuple(_message(choices) for _ in range(1 + choices.below(_MESSAGES_MAX)))


def _message(choices: Choices) -> bytes:
    if choices.rarely(16):
        return choices.bytes(64)
    if choices.below(2):
        return encoded(_MESSAGE(choices), choices)
    order = _ORDER(choices)
    assert isinstance(order, fleet_pb2.Order)
    return encoded(fleet_pb2.ControllerMessage(order=order), choices)


@asynccontextmanager
async def _world(folder: Path) -> AsyncIterator[Handler]:
    async with training(folder) as node:
        outlet = Outlet()
        targets = OrderTargets(
            node.jobs,
            _Peers(),
            _check,
            outlet.record,
            _Injections(),
            _PairTests(),
            lambda _: None,
        )

        async def handle(case: tuple[bytes, ...]) -> None:
            # A new gate for each case: one order of the highest term would end all others.
            orders = Orders(TermGate(1, lambda _: None), targets)
            for content in case:
                try:
                    message = fleet_pb2.ControllerMessage.FromString(content)
                except DecodeError:  # gRPC ends the stream
                    continue
                if message.WhichOneof("body") == "welcome":
                    orders.on_welcome(message.welcome, False)
                else:
                    orders.on_message(message)
                await asyncio.sleep(0)

        yield handle


CONTROLLER_ORDERS = Format(
    _make,
    _world,
    (
        "everstep_proto.record_codec",
        "everstep_proto.orders",
        "everstep_agent.orders",
        "everstep_agent.jobs.job",
        "everstep_agent.jobs.node_jobs",
    ),
    200,
)
