"""The calls of a driver in virtual time: one at a time, coalesced, with deadlines."""

import asyncio
from collections.abc import Sequence

import pytest

from everstep_common.quantities import NODES_MAX
from everstep_controller.core.events import DriverReported
from everstep_controller.core.model.isolation import DriverRecord, Hold, WantedIsolation
from everstep_controller.drivers.port import Applied, DriverError, DriverView, SchedulerNode
from everstep_controller.drivers.worker import CoreLink, DriverTiming, DriverWorker
from fakes.jumping_loop import simulate

DEADLINE_S = 30.0
NONE = frozenset[str]()


def wanted(node: str, reason: str = "operator: fan") -> WantedIsolation:
    return WantedIsolation(node, ("operator",), reason)


class SlowDriver:
    """Takes its time for each call; ``how`` says what comes of them."""

    def __init__(self, takes_s: float = 1.0, how: str = "well") -> None:
        self.takes_s = takes_s
        self.how = how
        self.calls: list[tuple[str, ...]] = []
        self.under_way = 0
        self.holds: dict[str, Hold] = {}
        self.down: dict[str, str] = {}
        self.nodes: dict[str, SchedulerNode] = {}

    async def read(self) -> DriverView:
        await self._take("read")
        return DriverView(dict(self.holds), self.down, self.nodes)

    async def apply(self, wanted: Sequence[WantedIsolation]) -> Applied:
        await self._take(*(f"{one.node} {one.reason}" for one in wanted))
        now = {one.node: Hold(one.reason, ours=True) for one in wanted}
        self.holds.update(now)
        if self.how == "elsewhere":
            return Applied({}, unmanaged={one.node for one in wanted})
        if self.how == "partly":
            return Applied({}, {"n0": "no such node"})
        return Applied(now)

    async def _take(self, *what: str) -> None:
        assert self.under_way == 0
        self.calls.append(what)
        self.under_way += 1
        try:
            await asyncio.sleep(self.takes_s)
        except asyncio.CancelledError:
            if self.how != "stubborn":
                raise
            await asyncio.sleep(100)
        finally:
            self.under_way -= 1
        if self.how == "raises":
            raise DriverError("the scheduler said no")
        if self.how == "bug":
            raise ZeroDivisionError


class Bench:
    """A worker around a driver, and what it has reported."""

    def __init__(
        self, driver: SlowDriver, record: DriverRecord | None = None, keys: frozenset[str] = NONE
    ) -> None:
        self.driver = driver
        self.paused_s = (0.0, 0.0)
        # Until then this controller may have a successor.
        self.sure_s = 0.0
        self.reports: list[DriverReported] = []
        self.record = record or DriverRecord("slow", read=True)
        link = CoreLink(
            lambda _: self.record, self._report, lambda: keys, self._is_paused, self._sure
        )
        self.worker = DriverWorker("slow", driver, link, DriverTiming(DEADLINE_S, 60.0))

    def _is_paused(self) -> bool:
        begin_s, end_s = self.paused_s
        return begin_s <= asyncio.get_running_loop().time() < end_s

    async def _sure(self) -> None:
        await asyncio.sleep(max(0.0, self.sure_s - asyncio.get_running_loop().time()))

    async def _report(self, event: DriverReported) -> None:
        self.reports.append(event)

    def run(self, seconds: float, *wants: tuple[float, WantedIsolation]) -> None:
        """Run for a while, and say what is wanted at which time."""

        async def scenario() -> None:
            task = asyncio.create_task(self.worker.run())
            for at_s, want in wants:
                await asyncio.sleep(at_s - asyncio.get_running_loop().time())
                self.worker.apply([want])
            await asyncio.sleep(seconds - asyncio.get_running_loop().time())
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        simulate(scenario())


def test_what_is_wanted_during_a_call_goes_into_the_next_one_with_the_newest_word() -> None:
    bench = Bench(SlowDriver(takes_s=10))
    bench.run(
        50,
        (0, wanted("n0", "a")),
        (1, wanted("n1", "b")),
        (2, wanted("n2", "c")),
        (3, wanted("n1", "d")),
    )
    assert bench.driver.calls == [("n0 a",), ("n1 d", "n2 c")]
    told = [one.wanted.node for report in bench.reports for one in report.results]
    assert told == ["n0", "n1", "n2"]


def test_a_driver_that_hangs_has_failed_at_its_deadline_and_is_called_again() -> None:
    bench = Bench(SlowDriver(takes_s=1e6))
    bench.run(59, (0, wanted("n0")), (40, wanted("n1")))
    (report,) = bench.reports
    assert [one.failure for one in report.results] == ["no answer within 30 s"]
    assert len(bench.driver.calls) == 2


def test_a_driver_that_cannot_even_be_cancelled_is_not_called_a_second_time_meanwhile() -> None:
    bench = Bench(SlowDriver(takes_s=1e6, how="stubborn"))
    bench.run(59, (0, wanted("n0")), (40, wanted("n1")))
    failures = [one.failure for report in bench.reports for one in report.results]
    assert failures == ["no answer within 30 s", "the call before was cancelled and has not ended"]
    assert len(bench.driver.calls) == 1


@pytest.mark.parametrize(
    ("how", "sentence"),
    [("raises", "the scheduler said no"), ("bug", "ZeroDivisionError"), ("partly", "no such node")],
)
def test_whatever_a_driver_raises_or_refuses_is_a_result(how: str, sentence: str) -> None:
    bench = Bench(SlowDriver(how=how))
    bench.run(10, (0, wanted("n0")))
    (report,) = bench.reports
    assert [one.failure for one in report.results] == [sentence]
    assert bench.worker.failed_calls == 1


def test_a_node_that_an_answer_leaves_out_has_failed() -> None:
    bench = Bench(SlowDriver(how="partly"))
    bench.run(10, (0, wanted("n1")))
    assert "says nothing of this node" in bench.reports[0].results[0].failure


def test_a_node_that_the_scheduler_does_not_have_is_no_failure() -> None:
    bench = Bench(SlowDriver(how="elsewhere"))
    bench.run(10, (0, wanted("n0")))
    ((result,),) = [report.results for report in bench.reports]
    assert (result.unmanaged, result.failure) == (True, "")
    assert bench.worker.failed_calls == 0


def test_a_scheduler_is_read_every_minute_and_only_news_are_reported() -> None:
    bench = Bench(SlowDriver())
    bench.driver.holds["n0"] = Hold("ann: cables", ours=False)
    bench.record.nodes.clear()
    bench.run(200)
    assert bench.driver.calls == [("read",)] * 3
    assert len(bench.reports) == 3  # The record of this bench never learns of it.
    unchanged = Bench(SlowDriver())
    unchanged.run(200)
    assert unchanged.reports == []


def test_a_reading_that_was_asked_for_is_reported_though_it_shows_nothing_new() -> None:
    bench = Bench(SlowDriver(), DriverRecord("slow", reading=True))
    bench.worker.read()
    bench.run(10)
    assert bench.reports == [DriverReported(driver="slow", read=True)]
    assert bench.worker.failed_calls == 0


def test_a_reading_that_fails_is_reported() -> None:
    bench = Bench(SlowDriver(how="raises"))
    bench.run(70)
    assert bench.reports == [DriverReported(driver="slow", failure="the scheduler said no")]
    assert bench.worker.failed_calls == 1


def test_words_of_others_are_cut_to_a_sentence_that_steers_no_terminal() -> None:
    bench = Bench(SlowDriver())
    bench.driver.holds["n0"] = Hold("\x1b[2J" + "x" * 10_000, ours=False)
    bench.run(70)
    hold = bench.reports[0].seen[0].hold
    assert hold is not None
    assert len(hold.reason) == 512
    assert hold.reason.startswith("\\x1b[2J")


def test_what_is_no_name_of_a_node_is_left_out() -> None:
    driver = SlowDriver()
    driver.holds = {name: Hold("fan", ours=False) for name in ("n0", "n1\x1b[2J", "n" * 254)}
    driver.down = {"n2\n": "DOWN", "n3": "DOWN"}
    bench = Bench(driver)
    bench.run(seconds=70)
    (report,) = bench.reports
    assert [seen.node for seen in report.seen] == ["n0"]
    assert report.down == (("n3", "DOWN"),)


def test_an_answer_of_more_nodes_than_a_fleet_has_is_a_failure() -> None:
    driver = SlowDriver()
    driver.holds = {f"n{number}": Hold("fan", ours=False) for number in range(NODES_MAX + 1)}
    bench = Bench(driver)
    bench.run(seconds=70)
    assert [report.failure for report in bench.reports] == [
        f"its answer names more than {NODES_MAX} nodes"
    ]


def test_what_a_scheduler_does_not_hear_is_told_when_it_changes() -> None:
    bench = Bench(SlowDriver())
    bench.driver.down = {"n1": "DOWN*: not\x1b responding"}
    bench.run(63)
    (report,) = bench.reports
    ((node, said),) = report.down
    assert (node, said.startswith("DOWN*"), "\x1b" in said) == ("n1", True, False)
    bench = Bench(bench.driver, DriverRecord("slow", read=True, down=dict(report.down)))
    bench.run(63)
    assert not bench.reports


def test_nothing_is_applied_while_drivers_are_paused_but_readings_go_on() -> None:
    bench = Bench(SlowDriver(takes_s=10))
    bench.paused_s = (5.0, 130.0)
    bench.run(140, (0, wanted("n0")), (2, wanted("n1")), (50, wanted("n2")))
    assert bench.driver.calls == [("n0 operator: fan",), ("read",)]
    told = [one.wanted.node for report in bench.reports for one in report.results]
    assert told == ["n0"], "what is under way ends"


def test_a_controller_that_may_have_a_successor_applies_nothing_until_it_is_sure() -> None:
    bench = Bench(SlowDriver())
    bench.sure_s = 20.0
    bench.run(19, (0, wanted("n0", "a")), (5, wanted("n0", "b")))
    assert bench.driver.calls == []
    bench = Bench(SlowDriver())
    bench.sure_s = 20.0
    bench.run(30, (0, wanted("n0", "a")), (5, wanted("n0", "b")))
    assert bench.driver.calls == [("n0 b",)]


def test_labels_are_told_by_the_keys_that_groups_ask_for_and_when_they_change() -> None:
    driver = SlowDriver()
    said = {"partition": "gpu\x1b", "feature": "h100"}
    driver.nodes = {"n0": SchedulerNode("IDLE", labels=said), "n1": SchedulerNode("DOWN")}
    bench = Bench(driver, keys=frozenset({"partition", "rack"}))
    bench.run(63)
    (report,) = bench.reports
    assert report.labels == {"n0": {"partition": "gpu\\x1b"}}
    known = DriverRecord("slow", read=True, labels={"n0": {"partition": "gpu\\x1b"}})
    again = Bench(driver, known, keys=frozenset({"partition"}))
    again.run(63)
    assert again.reports == []
    driver.nodes = {}
    gone = Bench(driver, known, keys=frozenset({"partition"}))
    gone.run(63)
    assert [report.labels for report in gone.reports] == [{"n0": {}}]
    nobody = Bench(SlowDriver())
    nobody.driver.nodes = {"n0": SchedulerNode("IDLE", labels=said)}
    nobody.run(63)
    assert nobody.reports == []


def test_what_a_scheduler_says_of_nodes_is_kept_with_its_time_in_bounded_words() -> None:
    bench = Bench(SlowDriver())
    work = tuple(f"job {number}" for number in range(1000))
    bench.driver.nodes = {"n0": SchedulerNode("MIXED\x1b" + "x" * 1000, work, {"a": "b"})}
    bench.run(63)
    reading = bench.worker.reading
    assert reading is not None
    assert reading.at_s == 60.0
    node = reading.nodes["n0"]
    assert (len(node.state), len(node.work), node.labels) == (128, 32, {})
    assert node.state.startswith("MIXED\\x1b")
