"""Copies are reported together, and at once enough; in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable

from everstep_agent.jobs.job.report import Reporter
from everstep_proto.generated import fleet_pb2
from fakes.jumping_loop import simulate


class Node:
    """What a node holds, and what it said of that, each with its time."""

    def __init__(self) -> None:
        self.holds: list[fleet_pb2.VaultCopy] = []
        self.bad: list[str] = []
        self.said: list[tuple[float, list[int]]] = []
        self.slot_taken_ns = 0
        self.passed: list[fleet_pb2.PassedStep] = []
        self.reporter = Reporter(self, 0.02, self._report)

    def _report(self) -> fleet_pb2.VaultReport:
        bad, self.bad = self.bad, []
        turnover = fleet_pb2.Turnover(slots=3, p50_ns=self.slot_taken_ns)
        return fleet_pb2.VaultReport(
            job="j",
            copies=self.holds,
            bad_copies=bad,
            turnover=turnover,
            passed=self.passed,
        )

    def record(self, record: fleet_pb2.Record) -> None:
        raise AssertionError(record)

    def vault_report(self, report: fleet_pb2.VaultReport) -> None:
        now_s = round(asyncio.get_running_loop().time(), 2)
        self.said.append((now_s, [copy.rank for copy in report.copies]))

    async def hold(self, *ranks: int, then_s: float = 0.0) -> None:
        """Hold these from now on, and let some time pass."""
        self.holds = [fleet_pb2.VaultCopy(rank=rank) for rank in ranks]
        self.reporter.report_soon()
        await asyncio.sleep(then_s)

    async def leave_out(self, step: int, then_s: float = 0.0) -> None:
        """Have a rank leave a step out, and let some time pass."""
        self.passed = [fleet_pb2.PassedStep(step=step)]
        self.reporter.report_soon()
        await asyncio.sleep(then_s)

    async def add(self, step: int, *, own: int = 0, replicas: int = 0, then_s: float = 0.0) -> None:
        """Hold so many copies of a step besides the others, and let some time pass."""
        self.holds += [fleet_pb2.VaultCopy(rank=rank, step=step) for rank in range(own)]
        self.holds += [
            fleet_pb2.VaultCopy(rank=8 + rank, step=step, replica=True) for rank in range(replicas)
        ]
        self.reporter.report_soon()
        await asyncio.sleep(then_s)


def _lived(story: Callable[[Node], Awaitable[None]], ranks: int = 8) -> Node:
    node = Node()
    node.reporter.ranks = ranks

    async def life() -> None:
        await story(node)
        await asyncio.sleep(20)

    simulate(life())
    return node


def test_what_is_verified_a_few_milliseconds_apart_is_one_report() -> None:
    async def story(node: Node) -> None:
        await node.hold(0, then_s=0.005)
        await node.hold(0, 1, then_s=0.005)
        await node.hold(0, 1, 2)

    assert _lived(story).said == [(0.02, [0, 1, 2])]


def test_how_long_slots_are_taken_goes_with_other_news_and_is_none() -> None:
    async def story(node: Node) -> None:
        await node.hold(0, then_s=1)
        node.slot_taken_ns = 7
        await node.hold(0, then_s=1)
        await node.hold(0, 1)

    assert _lived(story).said == [(0.02, [0]), (2.02, [0, 1])]


def test_a_large_job_gathers_for_longer() -> None:
    async def story(node: Node) -> None:
        await node.hold(0, then_s=0.2)
        await node.hold(0, 1)

    assert _lived(story, ranks=16_384).said == [(0.25, [0, 1])]
    assert len(_lived(story, ranks=64).said) == 2


def test_what_was_only_freed_waits_for_the_next_news() -> None:
    async def story(node: Node) -> None:
        await node.hold(0, 1, then_s=0.1)
        await node.hold(1, then_s=0.1)
        await node.hold(1, 2)

    assert [ranks for _, ranks in _lived(story).said] == [[0, 1], [1, 2]]


def test_or_ten_seconds() -> None:
    async def story(node: Node) -> None:
        await node.hold(0, 1, then_s=0.1)
        await node.hold(1)

    assert _lived(story).said[1:] == [(10.12, [1])]


def _times(node: Node) -> list[float]:
    return [at_s for at_s, _ in node.said]


def test_a_step_is_one_report_when_its_replicas_come_half_a_second_later() -> None:
    async def story(node: Node) -> None:
        for step in range(3):
            await node.add(step, own=2, then_s=0.5)
            await node.add(step, replicas=2, then_s=4.5)

    # Of the first step nobody knows yet that replicas come.
    assert _times(_lived(story)) == [0.02, 0.52, 5.52, 10.52]


def test_replicas_that_do_not_come_are_waited_for_for_a_second() -> None:
    async def story(node: Node) -> None:
        await node.add(0, own=2, replicas=2, then_s=5)
        await node.add(1, own=2, then_s=0.5)
        await node.add(1, replicas=1, then_s=4.5)
        await node.add(2, own=2)

    assert _times(_lived(story)) == [0.02, 6.02, 11.02]


def test_replicas_of_one_step_wait_for_none_of_the_next() -> None:
    async def story(node: Node) -> None:
        await node.add(0, own=2, replicas=2, then_s=5)
        for step in range(1, 4):
            await node.add(step, own=2, then_s=0.1)
            await node.add(step, replicas=2, then_s=0.1)

    assert _times(_lived(story)) == [0.02, 5.12, 5.32, 5.52]


def test_a_bad_copy_and_the_last_one_do_not_wait() -> None:
    async def story(node: Node) -> None:
        await node.hold(0, 1, 2, then_s=0.1)
        node.bad = ["rank 2: flipped"]
        await node.hold(0, 1, then_s=0.1)
        await node.hold(then_s=0.1)

    assert _lived(story).said[1:] == [(0.12, [0, 1]), (0.22, [])]


def test_no_news_is_no_report() -> None:
    async def story(node: Node) -> None:
        await node.hold(0, then_s=0.1)
        await node.hold(0, then_s=0.1)

    assert len(_lived(story).said) == 1


def test_what_is_told_now_is_not_told_again_later() -> None:
    async def story(node: Node) -> None:
        await node.hold(0, 1, then_s=0.1)
        await node.hold(1, then_s=0.1)
        node.reporter.report()

    assert [ranks for _, ranks in _lived(story).said] == [[0, 1], [1]]


def test_a_step_that_is_left_out_is_told_at_once_and_of_many_one_each_half_second() -> None:
    async def story(node: Node) -> None:
        await node.hold(0, then_s=3)
        for step in range(20):
            await node.leave_out(step, then_s=0.1)

    assert _times(_lived(story)) == [0.02, 3.02, 3.52, 4.02, 4.52, 5.02]


def test_that_none_is_left_out_any_more_is_no_news_by_itself() -> None:
    async def story(node: Node) -> None:
        await node.hold(0, then_s=1)
        await node.leave_out(4, then_s=1)
        node.passed = []
        await node.hold(0, then_s=1)
        await node.hold(0, 1)

    assert _times(_lived(story)) == [0.02, 1.02, 3.02]
