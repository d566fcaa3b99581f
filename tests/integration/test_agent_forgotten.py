"""A controller whose journal was restored from an old backup, and an agent with a running job."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everstep_agent.backoff import Backoff
from everstep_agent.jobs.job.context import Environment
from everstep_agent.jobs.node_jobs import NodeJobs
from everstep_agent.liveness import Liveness
from everstep_agent.orders import CheckResult, Orders, OrderTargets, TermGate
from everstep_agent.persistence.agent_database import Remembered
from everstep_agent.persistence.disk_store import LostStore
from everstep_agent.persistence.outbox import Outbox
from everstep_agent.uplink import Uplink, UplinkSettings
from everstep_common.clock import stamp_clock
from everstep_common.launcher_messages import Start
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import to_wire
from fakes.local_secret import access_to
from fakes.no_injections import NoInjections
from fakes.no_pair_tests import NoPairTests
from fakes.one_loop import run
from fakes.tiny_fleet import TinyFleet, serving
from integration.vault_world import Kept, Node, Outlet, launcher, plan, settings

_STAMP = stamp_clock()


class _Agent:
    """The part of an agent that serves jobs, with its stream."""

    def __init__(self, folder: Path, port: int) -> None:
        self.outbox = Outbox(LostStore("test"), Remembered("outbox-1"), _STAMP, 10_000)
        uplink = UplinkSettings(
            controllers=(access_to(port),), connect_timeout_s=5.0, silence_s=30.0
        )
        backoff = Backoff(random.Random(1), first_s=0.02, cap_s=0.1)
        self.uplink = Uplink(uplink, self.outbox, _STAMP, backoff)
        chosen = settings(folder)
        surroundings = Environment(stored_fds={}, keeper=Kept())
        self.jobs = NodeJobs(chosen, self, "node-1", surroundings)
        self.node = Node("node-1", self.jobs, Outlet(), chosen)
        peers = Liveness("node-1", self.uplink.say)
        targets = OrderTargets(
            self.jobs,
            peers,
            self._check,
            self.outbox.record,
            NoInjections(),
            NoPairTests(),
            lambda _: None,
        )
        self.orders = Orders(TermGate(0, lambda _: None), targets)

    def record(self, record: fleet_pb2.Record) -> None:
        """See Outlet."""
        self.outbox.record(record)

    def vault_report(self, report: fleet_pb2.VaultReport) -> None:
        """See Outlet."""
        self.uplink.vault_report(report)

    async def _check(self) -> CheckResult:
        return CheckResult(True, "fine")

    def hello(self) -> fleet_pb2.Hello:
        return fleet_pb2.Hello(
            node="node-1",
            outbox=self.outbox.name,
            jobs=[to_wire(job, fleet_pb2.JobOnNode) for job in self.jobs.jobs()],
        )


@asynccontextmanager
async def _running(agent: _Agent) -> AsyncIterator[None]:
    jobs = asyncio.create_task(agent.jobs.run())
    await agent.jobs.ready.wait()
    uplink = asyncio.create_task(agent.uplink.run(agent.hello, agent.orders))
    try:
        yield
    finally:
        for task in (uplink, jobs):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _start(generation: int) -> fleet_pb2.ControllerMessage:
    order = fleet_pb2.Order(
        order_id="start", term=1, reason="test", start_generation=plan(generation)
    )
    return fleet_pb2.ControllerMessage(order=order)


def test_a_controller_that_has_forgotten_hears_again_who_takes_part(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as fleet:
            agent = _Agent(tmp_path, fleet.port)
            async with _running(agent), launcher(agent.node) as client:
                await fleet.until(lambda: fleet.records and not agent.outbox.counts.waiting)
                (joined,) = fleet.of("launcher_joined")
                assert joined.launcher_joined.running_generation == 0
                fleet.say(_start(7))
                assert isinstance(await client.hear(), Start)
                # After an ordinary break it hears nothing that it knows.
                agent.uplink.renew()
                await fleet.until(lambda: len(fleet.hellos) == 2 and agent.uplink.connected)
                assert len(fleet.of("launcher_joined")) == 1

                fleet.records.clear()
                agent.uplink.renew()
                await fleet.until(lambda: fleet.of("launcher_joined"))
                again = fleet.of("launcher_joined")[0].launcher_joined
                assert again.running_generation == 7
                assert fleet.of("launcher_joined")[0].job == joined.job
                assert again.token_sha256 == joined.launcher_joined.token_sha256

    run(scenario())
