"""Judges in a real controller: what they find outlives streams and controllers."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from everstep_common.judging.condition import Condition
from everstep_common.judging.fault import Fault
from everstep_common.samples import COLUMNS, SCHEMA
from everstep_controller.core import events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.journal.codec import decode_event
from everstep_controller.journal.sqlite.journal import SqliteBackend, SqliteJournal
from everstep_controller.judging.judge import Judge, NodeEvidence, Ruling
from everstep_controller.judging.sample_stream import SAMPLES_MISSING, SampleStreamJudge
from everstep_controller.judging.view import FleetView
from everstep_controller.replay import replay
from everstep_controller.service import Controller, Options
from everstep_proto.generated import admin_pb2, admin_pb2_grpc, fleet_pb2
from fakes.agent_stream import WAIT_S, AgentStream, agent_stream
from fakes.controllers import config
from fakes.local_secret import admin_channel
from fakes.waits import eventually

NODES = tuple(f"n{number}" for number in range(5))
ODD = "n3"
MISSING = SAMPLES_MISSING.name
# The judge as it is, but that three seconds are long: samples come every 50 ms here.
QUICK = SampleStreamJudge(floor_s=3.0, fleet_late_s=2.0)
_SAMPLE_S = 0.05
_JUDGE_S = 0.1
# In so many rounds the judges would have said what they do not say.
_ROUNDS = 10
_ROW = np.full((1, len(COLUMNS)), np.nan, dtype="<f4").tobytes()


@dataclass
class SamplingAgent:
    """A stream that answers for its clock, as an agent does, and sends samples while it may."""

    stream: AgentStream
    sampling: bool = True
    _began_ns: int = field(default_factory=time.monotonic_ns)
    # A call takes one message at a time.
    _sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    def stamp(self) -> fleet_pb2.Stamp:
        """Return the node's clocks; its boot began before the stream, as ``hello`` says."""
        boot_ns = time.monotonic_ns() - self._began_ns + 1
        return fleet_pb2.Stamp(boot_id="boot", boot_ns=boot_ns, wall_ns=time.time_ns())

    async def answer(self) -> None:
        """Answer every question for the time."""
        while True:
            asked = (await self.stream.wait_for("time_request")).time_request
            reply = fleet_pb2.TimeReply(sent_ns=asked.sent_ns, stamp=self.stamp())
            async with self._sending:
                await self.stream.send(time_reply=reply)

    async def sample(self) -> None:
        """Send a sample at intervals."""
        while True:
            if self.sampling:
                batch = fleet_pb2.SampleBatch(
                    schema=SCHEMA, first=self.stamp(), interval_ns=1, rows=_ROW
                )
                async with self._sending:
                    await self.stream.send(samples=batch)
            await asyncio.sleep(_SAMPLE_S)


@asynccontextmanager
async def sampling_agent(
    port: int, node: str, *, sampling: bool = True
) -> AsyncIterator[SamplingAgent]:
    """Have an agent connected, with its samples or without."""
    async with agent_stream(port, node) as stream:
        await stream.hello()
        agent = SamplingAgent(stream, sampling)
        tasks = [asyncio.create_task(part) for part in (agent.answer(), agent.sample())]
        try:
            yield agent
            assert not any(task.done() for task in tasks), "it sent until the end"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class CountingJudge:
    """A judge that finds nothing, and counts how often the judges were asked."""

    conditions: ClassVar[tuple[Condition, ...]] = ()
    rounds: int = 0

    def judge(self, view: FleetView) -> tuple[Ruling, ...]:
        """See Judge."""
        self.rounds += 1
        return ()

    async def more(self, rounds: int) -> None:
        """Wait until the judges were asked so many times more."""
        last = self.rounds + rounds
        await eventually(lambda: self.rounds >= last)


@asynccontextmanager
async def judging_controller(
    folder: Path, judges: tuple[Judge, ...] = (QUICK,)
) -> AsyncIterator[Controller]:
    """Run a controller that judges often."""
    quick = replace(config(folder), judge_interval_s=_JUDGE_S)
    running = Controller.open(quick, Options(Core, judges=judges))
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


async def findings(port: int) -> Sequence[admin_pb2.FindingLine]:
    """Return what `everstep findings` shows."""
    async with admin_channel(port) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        return (await admin.ListFindings(admin_pb2.ListFindingsRequest())).findings


async def until_open(port: int, expected: set[tuple[str, str]]) -> Sequence[admin_pb2.FindingLine]:
    """Wait until exactly these findings are open; return them."""

    async def told() -> tuple[bool, Sequence[admin_pb2.FindingLine]] | None:
        found = await findings(port)
        return (True, found) if {(one.node, one.condition) for one in found} == expected else None

    return (await eventually(told, WAIT_S, f"without {expected}"))[1]


async def agents(
    stack: AsyncExitStack, port: int, *, mute: str = "", but: str = ""
) -> dict[str, SamplingAgent]:
    """Connect the agents of all nodes, one of them without samples."""
    return {
        node: await stack.enter_async_context(sampling_agent(port, node, sampling=node != mute))
        for node in NODES
        if node != but
    }


def verdicts(folder: Path) -> Iterator[events.VerdictChanged]:
    """Yield the verdicts in the journal."""
    store = SqliteJournal(folder / "journal.sqlite", read_only=True)
    try:
        for stored in store.events(0):
            event = decode_event(stored.kind, stored.body)
            if isinstance(event, events.VerdictChanged):
                yield event
    finally:
        store.close()


def test_samples_that_stop_are_found_and_the_finding_outlives_streams_and_controllers(
    tmp_path: Path,
) -> None:
    counting = CountingJudge()
    judges = (QUICK, counting)

    async def found() -> admin_pb2.FindingLine:
        async with judging_controller(tmp_path, judges) as running, AsyncExitStack() as stack:
            await agents(stack, running.port, but=ODD)
            async with sampling_agent(running.port, ODD) as odd:
                await counting.more(_ROUNDS)
                assert await findings(running.port) == [], "all of them send"
                odd.sampling = False
                (line,) = await until_open(running.port, {(ODD, MISSING)})
                assert line.owner == "controller"
            async with sampling_agent(running.port, ODD, sampling=False):
                assert list(await findings(running.port)) == [line], "it has said Hello again"
                await counting.more(_ROUNDS)
                assert list(await findings(running.port)) == [line]
        return line

    async def cleared(line: admin_pb2.FindingLine) -> None:
        async with judging_controller(tmp_path, judges) as running, AsyncExitStack() as stack:
            assert list(await findings(running.port)) == [line], "before any agent is back"
            connected = await agents(stack, running.port, mute=ODD)
            await counting.more(_ROUNDS)
            assert list(await findings(running.port)) == [line]
            connected[ODD].sampling = True
            await until_open(running.port, set())

    line = asyncio.run(found())
    asyncio.run(cleared(line))

    raised, over = verdicts(tmp_path)
    assert (raised.node, raised.key.condition, over.finding) == (ODD, MISSING, None)
    numbers = {one.name: one.value for one in raised.measurements}
    assert numbers["age_s"] > QUICK.floor_s
    assert numbers["nodes"] == len(NODES)
    assert replay(SqliteBackend(tmp_path / "journal.sqlite"), Core).differences == ()


def test_samples_that_all_stop_at_once_accuse_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        counting = CountingJudge()
        judges = (QUICK, counting)
        async with judging_controller(tmp_path, judges) as running, AsyncExitStack() as stack:
            connected = await agents(stack, running.port)
            await counting.more(_ROUNDS)
            for agent in connected.values():
                agent.sampling = False
            # One that stops alone is found after the judge's floor.
            await asyncio.sleep(1.5 * QUICK.floor_s)
            await counting.more(_ROUNDS)
            assert list(await findings(running.port)) == []

    asyncio.run(scenario())


_BROKEN = Condition(
    name="Broken", component="test", meaning="a test says so", source="it", clears_when="it ends"
)


@dataclass
class BreakableJudge:
    """A judge that fails as long as the test says so, and in that way."""

    conditions: ClassVar[tuple[Condition, ...]] = (_BROKEN,)
    broken: str = "judge"

    def judge(self, view: FleetView) -> tuple[Ruling, ...]:
        """See Judge."""
        if self.broken == "judge":
            raise ZeroDivisionError(f"{len(view.nodes)} nodes")
        everybody = np.ones(len(view.nodes), dtype=np.bool_)
        ruling = Ruling(
            condition=_BROKEN if self.broken == "explain" else replace(_BROKEN, name="Unlisted"),
            fault=Fault(message="it is broken", rule="none"),
            faulty=everybody,
            healthy=~everybody,
            explain=_explain_nothing,
        )
        return (ruling,) if self.broken else ()


def _explain_nothing(i: int) -> NodeEvidence:
    raise ZeroDivisionError(f"node {i}")


@pytest.mark.parametrize("broken", ["explain", "condition"])
def test_a_judge_that_cannot_explain_or_does_not_list_its_condition_stops_no_other(
    broken: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        judges = (BreakableJudge(broken), QUICK)
        async with judging_controller(tmp_path, judges) as running, AsyncExitStack() as stack:
            await agents(stack, running.port, mute=ODD)
            await until_open(running.port, {("controller", "JudgeFailed"), (ODD, MISSING)})

    asyncio.run(scenario())


def test_a_judge_that_fails_is_a_finding_and_the_others_judge(tmp_path: Path) -> None:
    async def scenario() -> None:
        breakable = BreakableJudge()
        judges = (breakable, QUICK)
        async with judging_controller(tmp_path, judges) as running, AsyncExitStack() as stack:
            failed = ("controller", "JudgeFailed")
            await until_open(running.port, {failed})
            connected = await agents(stack, running.port, mute=ODD)
            await until_open(running.port, {failed, (ODD, MISSING)})
            breakable.broken = ""
            connected[ODD].sampling = True
            await until_open(running.port, set())

    asyncio.run(scenario())
