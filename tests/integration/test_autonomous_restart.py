"""The controller is away: a job that is all on this node goes on, another one waits."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from everstep_agent.jobs.job.context import Environment
from everstep_common.clock import boot_ns
from everstep_common.launcher_messages import Notice, Start, Stop
from everstep_common.rank_messages import Begin, Skip, Slot
from everstep_common.reports import GenerationStopped, LauncherLeft, RankExited
from everstep_proto.generated import fleet_pb2
from integration.vault_world import (
    TIMEOUT_S,
    Client,
    Kept,
    Node,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
)


@dataclass(slots=True)
class Absence:
    """Whether the controller is away, and for how long."""

    away_s: float = 0.0
    # How often a halted one was told of what Hello says.
    hellos: int = 0

    def world(self, kept: Kept | None = None) -> Environment:
        keeper = kept or Kept()
        return Environment(
            stored_fds=keeper.hand_over(),
            keeper=keeper,
            controller_away_s=lambda: self.away_s,
            tell_halted=self._say_hello,
        )

    def _say_hello(self) -> None:
        self.hellos += 1


def _owned(generation: int = 1, own_restarts: int = 3, **values: int) -> fleet_pb2.StartGeneration:
    wanted = plan(generation)
    wanted.own_restarts = own_restarts
    wanted.MergeFrom(fleet_pb2.StartGeneration(**values))  # type: ignore[arg-type]
    return wanted


@asynccontextmanager
async def _job(
    folder: Path, absence: Absence, wanted: fleet_pb2.StartGeneration
) -> AsyncIterator[tuple[Node, Client]]:
    chosen = settings(folder, controller_grace_s=0.05)
    async with running(chosen, world=absence.world()) as node, launcher(node) as control:
        node.order(start_generation=wanted)
        assert isinstance(await control.hear(), Start)
        yield node, control


def _killed(generation: int, kind: str = "killed", exception: str = "") -> RankExited:
    return RankExited(
        generation=generation,
        rank=0,
        exit_code=1,
        signal=0,
        at_boot_ns=boot_ns(),
        last_line="",
        kind=kind,
        exception=exception,
    )


async def _hear(control: Client, kind: type) -> object:
    """Return the next message of a kind; what else there was are notices."""
    while not isinstance(message := await control.hear(), kind):
        assert isinstance(message, Notice), message
    return message


async def _fail(control: Client, generation: int, **how: str) -> None:
    """Have rank 0 die, and the generation stopped as the agent says."""
    await control.tell(_killed(generation, **how))
    stop = await _hear(control, Stop)
    assert isinstance(stop, Stop)
    assert stop.generation == generation
    await control.tell(GenerationStopped(generation, 29600 + generation, boot_ns()))


def _holds(node: Node, step: int) -> Callable[[], bool]:
    return lambda: (1, 0, step, False) in node.outlet.copies()


def _kinds(node: Node) -> list[str | None]:
    return [record.WhichOneof("body") for record in node.outlet.records]


@lived
async def test_the_job_goes_on_after_its_newest_whole_step(tmp_path: Path) -> None:
    absence = Absence(60.0)
    async with _job(tmp_path, absence, _owned()) as (node, control):
        async with trainer(node) as rank:
            # More steps than there are slots: nobody but the agent frees them now.
            for step in range(1, 9):
                await rank.save(step, b"state after %d" % step)
                await node.outlet.until(_holds(node, step))
        await _fail(control, 1)
        start = await _hear(control, Start)
        assert isinstance(start, Start)
        assert (start.generation, start.restore_step, start.master_port) == (2, 8, 29601)
        assert "restarted here while the controller is away" in start.reason
        assert absence.hellos == 1
        async with trainer(node, generation=2) as again:
            assert await again.restore() == b"state after 8"
            await again.save(9, b"state after 9")
            await node.outlet.until(lambda: (2, 0, 9, False) in node.outlet.copies())
        told = node.outlet.bodies("restarted_here")[0].restarted_here
        assert (told.after_generation, told.generation) == (1, 2)
        assert (told.restore_step, told.restore_generation) == (8, 1)
        assert node.outlet.bodies("generation_stopped") == []
        assert _kinds(node).index("rank_exited") < _kinds(node).index("restarted_here")
        (seen,) = node.jobs.jobs()
        assert (seen.generation, seen.planned_generation) == (2, 1)
        # An old order and an old word change nothing.
        node.order(start_generation=_owned())
        node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=1))
        (job,) = node.jobs.table.named("demo")
        assert job.facts.plan.generation == 2


@lived
async def test_slots_that_were_full_before_the_controller_went_are_freed_for_later_steps(
    tmp_path: Path,
) -> None:
    absence = Absence(0.0)
    async with _job(tmp_path, absence, _owned()) as (node, _), trainer(node) as rank:
        slots = len(rank.maps)
        for step in range(slots):
            await rank.save(step, b"state after %d" % step)
            await node.outlet.until(_holds(node, step))
        assert isinstance(await rank.ask(Begin(slots, 0.0)), Skip)
        # From now on nothing happens in the vault but that a step asks.
        absence.away_s = 60.0
        later = itertools.count(slots + 1)
        async with asyncio.timeout(TIMEOUT_S):
            while not isinstance(await rank.ask(Begin(next(later), 0.0)), Slot):
                continue


@lived
async def test_the_restarts_are_counted_down_and_then_the_job_waits(tmp_path: Path) -> None:
    async with _job(tmp_path, Absence(60.0), _owned(own_restarts=1)) as (node, control):
        await _fail(control, 1)
        await _hear(control, Start)
        await control.tell(_killed(2))
        notice = await _hear(control, Notice)
        while isinstance(notice, Notice) and "restarted 1 times without it" not in notice.text:
            notice = await _hear(control, Notice)
        assert len(node.outlet.bodies("restarted_here")) == 1


@lived
async def test_the_same_error_of_the_script_twice_only_stops_it(tmp_path: Path) -> None:
    how = {"kind": "exception", "exception": "ValueError: boom"}
    async with _job(tmp_path, Absence(60.0), _owned()) as (node, control):
        await _fail(control, 1, **how)
        await _hear(control, Start)
        await _fail(control, 2, **how)
        await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
        stopped = node.outlet.bodies("generation_stopped")[0].generation_stopped
        assert stopped.generation == 2
        assert len(node.outlet.bodies("restarted_here")) == 1


@lived
async def test_a_job_on_several_nodes_waits_and_its_terminal_says_so(tmp_path: Path) -> None:
    wanted = _owned(own_restarts=0, node_count=2, world_size=2)
    async with _job(tmp_path, Absence(60.0), wanted) as (node, control):
        await control.tell(_killed(1))
        notice = await _hear(control, Notice)
        assert isinstance(notice, Notice)
        assert "rank 0 exited 1; the controller is away: the job waits for it" in notice.text
        assert node.outlet.bodies("restarted_here") == []


@lived
async def test_a_controller_that_is_there_decides_itself(tmp_path: Path) -> None:
    async with _job(tmp_path, Absence(0.0), _owned()) as (node, control):
        await control.tell(_killed(1))
        await node.outlet.until(lambda: node.outlet.bodies("rank_exited"))
        node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=1))
        await _hear(control, Stop)
        await control.tell(GenerationStopped(1, 29601, boot_ns()))
        await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
        assert node.outlet.bodies("restarted_here") == []


@lived
async def test_a_controller_that_is_back_before_the_ranks_are_gone_decides(tmp_path: Path) -> None:
    absence = Absence(60.0)
    async with _job(tmp_path, absence, _owned()) as (node, control):
        await control.tell(_killed(1))
        await _hear(control, Stop)
        absence.away_s = 0.0
        await control.tell(GenerationStopped(1, 29601, boot_ns()))
        await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
        assert node.outlet.bodies("restarted_here") == []
        node.order(start_generation=_owned(2))
        start = await _hear(control, Start)
        assert isinstance(start, Start)
        assert start.generation == 2


@lived
async def test_an_order_to_stop_ends_the_agents_own_restart_even_if_the_controller_goes_again(
    tmp_path: Path,
) -> None:
    async with _job(tmp_path, Absence(60.0), _owned()) as (node, control):
        await control.tell(_killed(1))
        await _hear(control, Stop)
        node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=1))
        await _hear(control, Stop)
        await control.tell(GenerationStopped(1, 29601, boot_ns()))
        await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
        assert node.outlet.bodies("restarted_here") == []


@lived
async def test_a_job_that_its_user_ends_is_not_restarted(tmp_path: Path) -> None:
    async with _job(tmp_path, Absence(60.0), _owned()) as (node, control):
        await control.tell(LauncherLeft("interrupted", by_user=True))
        await control.tell(_killed(1))
        await control.tell(GenerationStopped(1, 29601, boot_ns()))
        await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
        assert _kinds(node).index("launcher_left") < _kinds(node).index("rank_exited")
        assert node.outlet.bodies("restarted_here") == []


@lived
async def test_an_agent_that_starts_again_in_the_middle_goes_on_with_it(tmp_path: Path) -> None:
    kept, absence = Kept(), Absence(60.0)
    chosen = settings(tmp_path, controller_grace_s=0.05)
    async with running(chosen, world=absence.world(kept)) as node, launcher(node) as control:
        node.order(start_generation=_owned())
        await control.hear()
        async with trainer(node) as rank:
            await rank.save(1, b"state after 1")
            await node.outlet.until(lambda: node.outlet.copies())
        await control.tell(_killed(1))
        await _hear(control, Stop)
    async with (
        running(chosen, world=absence.world(kept)) as node,
        launcher(node, running_generation=1) as control,
    ):
        await _hear(control, Stop)
        await control.tell(GenerationStopped(1, 29601, boot_ns()))
        start = await _hear(control, Start)
        assert isinstance(start, Start)
        assert (start.generation, start.restore_step) == (2, 1)
        async with trainer(node, generation=2) as again:
            assert await again.restore() == b"state after 1"
    kept.close()
