"""Driver worker: makes the calls of one isolation driver, one at a time, each with a deadline.

What is wanted while a call is under way goes into the next one, newest word per node. A driver that
hangs or raises is a result: the core hears of it as of any other, and decides when it is tried
again. Between calls the scheduler is read now and then, for others change it too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from everstep_common.printable import printable
from everstep_common.quantities import NODES_MAX
from everstep_controller.core.actions import ApplyIsolation, ReadIsolation
from everstep_controller.core.events import DriverReported
from everstep_controller.core.model.isolation import (
    DriverRecord,
    Hold,
    IsolationResult,
    WantedIsolation,
)
from everstep_controller.core.nodes.isolation_differences import (
    changed_holds,
    changed_labels,
    is_awaited,
)
from everstep_controller.drivers.port import (
    Applied,
    ClosableDriver,
    DriverView,
    IsolationDriver,
    SchedulerNode,
)
from everstep_controller.drivers.turns import in_turns

# A call that was cancelled gets this long to end before it is taken for stuck.
_CANCEL_S = 5.0
_SENTENCE_MAX = 512
# What is kept in memory of what schedulers say of nodes.
_NODES_MAX, _STATE_MAX, _WORK_MAX, _WORK_NAME_MAX = 200_000, 128, 32, 128
# The longest name of a host (RFC 1123).
_NAME_MAX = 253

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DriverTiming:
    """Deadline of a driver's call, and the interval between readings."""

    call_timeout_s: float
    read_interval_s: float


async def _at_once() -> None:
    """Wait for nothing."""


@dataclass(frozen=True, slots=True)
class CoreLink:
    """Connection of a driver worker to the core: reads its record, and reports results.

    ``label_keys`` returns the keys of labels by which some group selects; ``paused``, whether
    nothing is to be applied. ``sure`` waits until this controller has just proven that it is the
    one that acts: one that stood still may have a successor.
    """

    record: Callable[[str], DriverRecord | None]
    report: Callable[[DriverReported], Awaitable[None]]
    label_keys: Callable[[], Collection[str]] = frozenset
    paused: Callable[[], bool] = bool
    sure: Callable[[], Awaitable[None]] = _at_once


@dataclass(frozen=True, slots=True)
class SchedulerReading:
    """What a scheduler said last of its nodes, and when, on the loop's clock.

    ``age_s``: how long ago the reading began, where somebody has asked.
    """

    at_s: float
    nodes: Mapping[str, SchedulerNode]
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Failure:
    sentence: str


@dataclass(frozen=True, slots=True)
class _Told:
    """What a reading says, within bounds."""

    nodes: Mapping[str, SchedulerNode]
    holds: Mapping[str, Hold]
    down: Mapping[str, str]
    labels: Mapping[str, Mapping[str, str]]


class DriverWorker:
    """Worker of one driver; ``run`` is its task, ``apply`` and ``read`` set the next calls."""

    def __init__(
        self, name: str, driver: IsolationDriver, link: CoreLink, timing: DriverTiming
    ) -> None:
        self._name = name
        self._driver = driver
        self._link = link
        self._timing = timing
        self._wanted: dict[str, WantedIsolation] = {}
        self._read_due = False
        self._is_reading = False
        self._wake = asyncio.Event()
        self._stuck: asyncio.Task[Any] | None = None
        # Calls since the start that failed, as a whole or for some of their nodes.
        self.failed_calls = 0
        # The newest reading; None before the first.
        self.reading: SchedulerReading | None = None

    def apply(self, wanted: Iterable[WantedIsolation]) -> None:
        """Have the next call apply this as well."""
        self._wanted.update((one.node, one) for one in wanted)
        self._wake.set()

    def read(self) -> None:
        """Have the scheduler read, unless that is under way."""
        if not self._is_reading:
            self._read_due = True
            self._wake.set()

    async def run(self) -> None:
        """Make calls until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._timing.read_interval_s):
                    await self._wake.wait()
            except TimeoutError:
                self._read_due = True
            self._wake.clear()
            while self._read_due or self._wanted:
                if self._link.paused():
                    self._wanted.clear()  # the core asks for it again
                if self._read_due:
                    await self._read()
                elif self._wanted:
                    await self._apply()

    async def _read(self) -> None:
        self._read_due, self._is_reading = False, True
        at_s = asyncio.get_running_loop().time()
        answer = _usable(await self._call(self._driver.read()))
        self._is_reading = False
        self.failed_calls += isinstance(answer, _Failure)
        if isinstance(answer, _Failure):
            if self._link.record(self._name) is not None:
                await self._link.report(DriverReported(driver=self._name, failure=answer.sentence))
            return
        record = self._link.record(self._name)
        before = record.labels if record is not None else {}
        told = await _told(answer, frozenset(self._link.label_keys()), before)
        self.reading = SchedulerReading(at_s, told.nodes)
        record = self._link.record(self._name)
        if record is None:
            return
        seen = changed_holds(record, told.holds)
        labels = changed_labels(record, told.labels)
        if seen or labels or told.down != record.down or is_awaited(record):
            down = tuple(sorted(told.down.items()))
            await self._link.report(
                DriverReported(driver=self._name, read=True, seen=seen, down=down, labels=labels)
            )

    async def _apply(self) -> None:
        await self._link.sure()
        wanted, self._wanted = tuple(self._wanted.values()), {}
        answer = await self._call(self._driver.apply(wanted))
        results = tuple(_result(one, answer) for one in wanted)
        self.failed_calls += any(result.failure for result in results)
        await self._link.report(DriverReported(driver=self._name, results=results))

    async def _call(self, call: Coroutine[Any, Any, T]) -> T | _Failure:
        """Return the answer of a call, or why there is none by its deadline."""
        if self._stuck is not None and not self._stuck.done():
            call.close()
            return _Failure("the call before was cancelled and has not ended")
        task: asyncio.Task[T] = asyncio.create_task(call, name=f"driver {self._name}")
        self._stuck = task
        try:
            await asyncio.wait({task}, timeout=self._timing.call_timeout_s)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=_CANCEL_S)
        if not task.done() or task.cancelled():
            return _Failure(f"no answer within {self._timing.call_timeout_s:g} s")
        error = task.exception()
        if error is not None:
            return _Failure(_sentence(str(error)) or type(error).__name__)
        return task.result()


class DriverWorkers:
    """The workers of all drivers that are configured."""

    def __init__(
        self, drivers: Mapping[str, IsolationDriver], link: CoreLink, timing: DriverTiming
    ) -> None:
        self._workers = {
            name: DriverWorker(name, driver, link, timing) for name, driver in drivers.items()
        }
        self._closable = [one for one in drivers.values() if isinstance(one, ClosableDriver)]
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the drivers, as the core is told them."""
        return tuple(self._workers)

    @property
    def failed_calls(self) -> dict[str, int]:
        """Return how many calls of each driver failed since the start, in part or as a whole."""
        return {name: worker.failed_calls for name, worker in self._workers.items()}

    def readings(self) -> dict[str, SchedulerReading]:
        """Return what each scheduler said last, of those that were read since the start."""
        known = ((name, worker.reading) for name, worker in self._workers.items())
        now_s = asyncio.get_running_loop().time()
        return {
            name: replace(reading, age_s=now_s - reading.at_s)
            for name, reading in known
            if reading is not None
        }

    def call(self, action: ApplyIsolation | ReadIsolation) -> None:
        """Have a driver do what the core wants, unless it is not configured any more."""
        worker = self._workers.get(action.driver)
        if worker is None:
            return
        if isinstance(action, ApplyIsolation):
            worker.apply(action.wanted)
        else:
            worker.read()

    def start(self) -> None:
        """Begin to make calls, each driver on its own."""
        self._tasks = [
            asyncio.create_task(worker.run(), name=f"isolation driver {name}")
            for name, worker in self._workers.items()
        ]

    async def stop(self) -> None:
        """End calls that are under way; the next start finds out how far they came."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(driver.close() for driver in self._closable), return_exceptions=True)


def _usable(answer: DriverView | _Failure) -> DriverView | _Failure:
    """Return a reading without what is no name of a node; one of too many nodes is none."""
    if isinstance(answer, _Failure):
        return answer
    if max(len(answer.holds), len(answer.down)) > NODES_MAX:
        return _Failure(f"its answer names more than {NODES_MAX} nodes")
    return DriverView(_of_names(answer.holds), _of_names(answer.down), _of_names(answer.nodes))


def _of_names(told: Mapping[str, T]) -> Mapping[str, T]:
    usable = (len(name) <= _NAME_MAX and name.isprintable() for name in told)
    if all(usable):
        return told
    return {k: v for k, v in told.items() if len(k) <= _NAME_MAX and k.isprintable()}


def _result(wanted: WantedIsolation, answer: Applied | _Failure) -> IsolationResult:
    if isinstance(answer, _Failure):
        return IsolationResult(wanted, failure=answer.sentence)
    if failure := answer.failures.get(wanted.node, ""):
        return IsolationResult(wanted, failure=_sentence(failure))
    if wanted.node in answer.unmanaged:
        return IsolationResult(wanted, unmanaged=True)
    if wanted.node not in answer.now:
        return IsolationResult(wanted, failure="its answer says nothing of this node")
    hold = answer.now[wanted.node]
    return IsolationResult(wanted, hold and _bounded(hold))


async def _told(
    view: DriverView, label_keys: Collection[str], before: Mapping[str, Mapping[str, str]]
) -> _Told:
    """Return what a reading says, within bounds; of labels what groups ask for: it is journaled.

    Labels that are as they were ``before`` are the same objects, which is soon known of all.
    """
    nodes: dict[str, SchedulerNode] = {}
    labels: dict[str, Mapping[str, str]] = {}
    told = _Told(nodes, holds := {}, down := {}, labels)
    async for name, node in in_turns(view.nodes.items()):
        if len(nodes) < _NODES_MAX:
            nodes[name] = _bounded_node(node)
        if keys := node.labels.keys() & label_keys:
            said = {key: _sentence(node.labels[key]) for key in sorted(keys)}
            labels[name] = before[name] if before.get(name) == said else said
    async for name, hold in in_turns(view.holds.items()):
        holds[name] = _bounded(hold)
    async for name, sentence in in_turns(view.down.items()):
        down[name] = _sentence(sentence)
    return told


def _bounded_node(node: SchedulerNode) -> SchedulerNode:
    """Return what is shown of a node, in bounded words and without labels."""
    work = tuple(_sentence(one)[:_WORK_NAME_MAX] for one in node.work[:_WORK_MAX])
    return SchedulerNode(_sentence(node.state)[:_STATE_MAX], work)


def _bounded(hold: Hold) -> Hold:
    return replace(hold, reason=_sentence(hold.reason))


def _sentence(text: str) -> str:
    """Return a sentence of somebody else's for journal and terminal."""
    return printable(text)[:_SENTENCE_MAX]
