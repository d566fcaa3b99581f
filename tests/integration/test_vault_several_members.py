"""A node outside the rack of most others keeps the replicas of several, as far as memory lasts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from everstep_agent.jobs.job.context import Environment
from everstep_common.launcher_messages import Start
from integration.vault_world import (
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

_PAGE = 4096


class _Gauge:
    """A node with so much memory to spare, beside what is given out."""

    def __init__(self, available: int) -> None:
        self.available = available

    def available_bytes(self) -> int:
        return self.available


@asynccontextmanager
async def _member(node: Node, rank: int) -> AsyncIterator[Client]:
    """A node that has one rank of three."""
    async with launcher(node) as control:
        node.order(start_generation=plan(first_rank=rank))
        assert isinstance(await control.hear(), Start)
        async with trainer(node, rank=rank) as process:
            yield process


@asynccontextmanager
async def _three(folder: Path, gauge: _Gauge) -> AsyncIterator[tuple[list[Node], list[Client]]]:
    """Members of which the third keeps the replicas of both others."""
    world = Environment(stored_fds={}, keeper=Kept(), gauge=gauge)
    async with (
        running(settings(folder / "a"), "node-1") as first,
        running(settings(folder / "b"), "node-2") as second,
        running(settings(folder / "c"), "node-3", world) as third,
        _member(first, 0) as rank_0,
        _member(second, 1) as rank_1,
        _member(third, 2) as rank_2,
    ):
        third.direct(1, target=first)
        yield [first, second, third], [rank_0, rank_1, rank_2]


def _keeps(node: Node, rank: int, step: int) -> bool:
    return (1, rank, step, True) in node.outlet.copies()


def _short(node: Node) -> bool:
    report = node.outlet.reports.get("demo")
    return report is not None and report.replicas_short


@lived
async def test_a_node_keeps_the_replicas_of_two_others(tmp_path: Path) -> None:
    async with _three(tmp_path, _Gauge(1 << 40)) as ((first, second, third), ranks):
        for node in (first, second):
            node.direct(1, target=third)
        for step in (1, 2, 3):
            await asyncio.gather(*(rank.save(step, f"{step}".encode()) for rank in ranks))
            for keeper, rank in ((third, 0), (third, 1), (first, 2)):
                await keeper.outlet.until(partial(_keeps, keeper, rank, step))
            for node in (first, second, third):
                node.direct(1, step, target=first if node is third else third)
        assert not _short(third)


@lived
async def test_without_memory_for_its_next_slots_it_keeps_those_of_one_and_says_so(
    tmp_path: Path,
) -> None:
    gauge = _Gauge(1 << 40)
    async with _three(tmp_path, gauge) as ((first, second, third), ranks):
        first.direct(1, target=third)
        await ranks[0].save(1, b"one")
        await third.outlet.until(lambda: _keeps(third, 0, 1))
        # For another replica, but not for three slots beside it.
        gauge.available = 3 * _PAGE
        second.direct(1, target=third)
        await ranks[1].save(1, b"one")
        await third.outlet.until(lambda: _short(third))
        # The controller may have it keep the other one's: what it has of the first is freed later.
        await third.outlet.until(lambda: _keeps(third, 1, 1))
        # And the first one's stay in its rack.
        first.direct(1, target=second)
        await second.outlet.until(lambda: _keeps(second, 0, 1))
