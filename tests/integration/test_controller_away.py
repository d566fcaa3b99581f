"""A controller that stood still, was away, or finds its wall clock set: what it makes of that."""

import asyncio
import time
from pathlib import Path

import pytest

from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.events import ControllerStalled, ControllerStarted, JournaledEvent
from everstep_controller.journal.codec import decode_event
from everstep_controller.journal.sqlite.journal import SqliteJournal
from everstep_proto.generated import fleet_pb2
from fakes.agent_stream import agent_stream, stamp
from fakes.controllers import controller
from fakes.waits import eventually
from integration.test_controller_streams import run_to_step

pytestmark = pytest.mark.timeout(120)

_DAY_NS = 86_400_000_000_000
_S = 1_000_000_000


def _events(folder: Path) -> list[JournaledEvent]:
    store = SqliteJournal(folder / "journal.sqlite", read_only=True)
    found = [decode_event(stored.kind, stored.body) for stored in store.events(0)]
    store.close()
    return found


def test_a_loop_that_stood_still_is_told_to_the_core(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controller(tmp_path) as running:
            await asyncio.sleep(0.6)  # who watches the loop has begun
            time.sleep(2.0)  # noqa: ASYNC251 - the loop stands still
            await eventually(
                lambda: any(isinstance(e, ControllerStalled) for e in _events(tmp_path))
            )
            assert running.runtime.events_rejected == 0

    asyncio.run(scenario())
    first = next(e for e in _events(tmp_path) if isinstance(e, ControllerStalled))
    assert first.duration_ns > 1.5 * _S


def test_the_time_between_two_controllers_is_told_before_the_second_begins(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controller(tmp_path):
            pass
        await asyncio.sleep(1.0)  # nobody is there for so long
        async with controller(tmp_path):
            pass

    asyncio.run(scenario())
    # A loaded machine may have stalls of its own between them.
    told = [e for e in _events(tmp_path) if isinstance(e, ControllerStalled | ControllerStarted)]
    starts = [at for at, event in enumerate(told) if isinstance(event, ControllerStarted)]
    assert len(starts) == 2
    away = told[starts[1] - 1]
    assert isinstance(away, ControllerStalled)
    assert 1 * _S <= away.duration_ns < 60 * _S


def test_a_wall_clock_a_day_ahead_at_a_start_costs_no_second_of_a_job(tmp_path: Path) -> None:
    async def until_it_steps() -> int:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.healthy()
            await run_to_step(agent, 7)
            return running.runtime.now_ns()

    async def a_day_ahead() -> tuple[int, dict[Category, int]]:
        wall = lambda: time.time_ns() + _DAY_NS  # noqa: E731
        async with (
            controller(tmp_path, wall_ns=wall) as running,
            agent_stream(running.port, "node-1") as agent,
        ):
            seen = fleet_pb2.JobOnNode(
                job="train", generation=1, launcher=True, planned_generation=1
            )
            await agent.hello(jobs=(seen,))
            ends = [stamp().boot_ns + 100]
            step = fleet_pb2.StepsCompleted(
                generation=1, first_step=8, end_boot_ns=ends, stall_ns=[0]
            )
            await agent.record(7, steps_completed=step)
            await agent.acknowledged(7)
            now_ns = running.runtime.now_ns()
            (job,) = running.runtime.state.jobs.values()
            return now_ns, dict(job.ledger.totals(now_ns))

    before_ns = asyncio.run(until_it_steps())
    after_ns, totals = asyncio.run(a_day_ahead())
    assert 0 < after_ns - before_ns < 100 * _S
    assert sum(totals.values()) < 200 * _S


def test_a_reboot_of_its_machine_with_a_wall_clock_a_day_ahead_costs_only_what_it_took(
    tmp_path: Path,
) -> None:
    down_s = 200

    async def until_it_steps() -> int:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.healthy()
            await run_to_step(agent, 7)
            return running.runtime.now_ns()

    async def after_the_reboot() -> tuple[int, dict[Category, int]]:
        wall = lambda: time.time_ns() + _DAY_NS  # noqa: E731
        began_ns = time.monotonic_ns()
        boot = ("second boot", lambda: 30 * _S + time.monotonic_ns() - began_ns)
        async with (
            controller(tmp_path, wall_ns=wall, boot=boot) as running,
            agent_stream(running.port, "node-1") as agent,
        ):
            seen = fleet_pb2.JobOnNode(
                job="train", generation=1, launcher=True, planned_generation=1
            )
            await agent.hello(jobs=(seen,), boot_ns=down_s * _S)
            ends = [(down_s - 1) * _S]
            step = fleet_pb2.StepsCompleted(
                generation=1, first_step=8, end_boot_ns=ends, stall_ns=[0]
            )
            await agent.record(7, steps_completed=step)
            await agent.acknowledged(7)
            now_ns = running.runtime.now_ns()
            (job,) = running.runtime.state.jobs.values()
            return now_ns, dict(job.ledger.totals(now_ns))

    before_ns = asyncio.run(until_it_steps())
    after_ns, totals = asyncio.run(after_the_reboot())
    assert (down_s - 20) * _S < after_ns - before_ns < (down_s + 60) * _S
    assert sum(totals.values()) < (down_s + 100) * _S
