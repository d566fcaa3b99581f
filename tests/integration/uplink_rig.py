"""An agent's uplink with its outbox and orders, whose jobs and peers keep what they were told."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from everstep_agent.backoff import Backoff
from everstep_agent.orders import CheckResult, Orders, OrderTargets, TermGate
from everstep_agent.persistence.agent_database import Remembered
from everstep_agent.persistence.disk_store import LostStore
from everstep_agent.persistence.outbox import Outbox
from everstep_agent.uplink import Uplink, UplinkSettings
from everstep_common.clock import stamp_clock
from everstep_common.orders import (
    ConfirmPeer,
    InspectRanks,
    JobOrder,
    PeerList,
    ReadOutput,
    SpareMemory,
    SparePreload,
    TellLauncher,
    VaultDirective,
)
from everstep_common.reports import OutputRead, RanksInspected
from everstep_proto.generated import fleet_pb2
from everstep_proto.local.client import LocalAccess
from everstep_proto.record_codec import to_wire
from fakes.local_secret import access_to
from fakes.no_injections import NoInjections
from fakes.no_pair_tests import NoPairTests

_STAMP = stamp_clock()


@dataclass
class Recorder:
    """Jobs and Peers that keep what they were told."""

    orders: list[str] = field(default_factory=list)
    directives: list[str] = field(default_factory=list)
    connected: int = 0
    forgotten: list[bool] = field(default_factory=list)
    peers: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    halts: int = 0
    # Asked each time that no controller acts any more; its answers.
    when_away: Callable[[], bool] = lambda: True
    away: list[bool] = field(default_factory=list)

    def on_order(self, order: JobOrder) -> None:
        self.orders.append(order.id)

    def on_directive(self, directive: VaultDirective) -> None:
        self.directives.append(directive.job)

    def on_spare_memory(self, wanted: SpareMemory) -> None:
        self.directives.append(wanted.job)

    def on_spare_preload(self, told: SparePreload) -> None:
        self.directives.append(told.job)

    def read_output(self, question: ReadOutput) -> OutputRead:
        return OutputRead(question.read_id, known=False)

    def tell_launcher(self, told: TellLauncher) -> None:
        self.told.append(told.text)

    def inspect(self, question: InspectRanks, answer: Callable[[RanksInspected], None]) -> None:
        answer(RanksInspected(question.inspection_id, missing="none"))

    def on_connected(self, forgotten: bool) -> None:
        self.connected += 1
        self.forgotten.append(forgotten)

    def on_halted(self) -> None:
        self.halts += 1

    def on_away(self) -> None:
        self.away.append(self.when_away())

    def watch(self, peers: PeerList) -> None:
        self.peers = [peer.node for peer in peers.peers]

    def confirm(self, question: ConfirmPeer) -> None:
        self.asked.append(question.confirm_id)

    def tell_again(self) -> None:
        pass


class Rig:
    """An uplink with its outbox, and what the controller made it do."""

    def __init__(
        self,
        *controllers: int | LocalAccess,
        silence_s: float = 30.0,
        backoff: Backoff | None = None,
        # A try that fails is told of as well: on a busy machine none may take too long.
        connect_timeout_s: float = 30.0,
        outbox: str = "outbox-1",
    ) -> None:
        self.outbox = Outbox(LostStore("test"), Remembered(outbox), _STAMP, 10_000)
        settings = UplinkSettings(
            controllers=tuple(
                access_to(one) if isinstance(one, int) else one for one in controllers
            ),
            connect_timeout_s=connect_timeout_s,
            silence_s=silence_s,
        )
        backoff = backoff or Backoff(random.Random(1), first_s=0.02, cap_s=0.1)
        self.uplink = Uplink(settings, self.outbox, _STAMP, backoff)
        self.done = Recorder(when_away=lambda: self.uplink.connected)
        self.checks = 0
        targets = OrderTargets(
            self.done,
            self.done,
            self._check,
            self.outbox.record,
            NoInjections(),
            NoPairTests(),
            lambda _: None,
        )
        self.terms = TermGate(0, lambda _: None)
        self.orders = Orders(self.terms, targets)

    async def _check(self) -> CheckResult:
        self.checks += 1
        return CheckResult(True, "fine")

    def hello(self) -> fleet_pb2.Hello:
        return fleet_pb2.Hello(
            node="node-1",
            outbox=self.outbox.name,
            stamp=to_wire(_STAMP(), fleet_pb2.Stamp),
            highest_term=self.terms.highest,
        )

    def record(self, name: str) -> None:
        finished = fleet_pb2.CheckFinished(order_id=name)
        self.outbox.record(fleet_pb2.Record(check_finished=finished))


@asynccontextmanager
async def running(rig: Rig) -> AsyncIterator[None]:
    task = asyncio.create_task(rig.uplink.run(rig.hello, rig.orders))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def stop_order(order_id: str, term: int) -> fleet_pb2.ControllerMessage:
    """Return an order that stops a generation."""
    stop = fleet_pb2.StopGeneration(job="j", generation=1)
    order = fleet_pb2.Order(order_id=order_id, term=term, reason="test", stop_generation=stop)
    return fleet_pb2.ControllerMessage(order=order)
