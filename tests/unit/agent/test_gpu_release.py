"""Whether GPUs are free after a generation, and how long that is waited for; in virtual time."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.gpus.reading import GpuProcess, GpuReading, GpusReading
from everstep_agent.detectors.gpus.release import LEFT, left_memory, used_by
from everstep_agent.jobs.job.device_release import DeviceRelease, NoGpus
from everstep_common.judging.findings import FindingKey, Mode, Severity
from everstep_common.judging.judgement import Faulty, Healthy, Unknown
from fakes.jumping_loop import simulate
from unit.agent.gpu_bench import HEALTHY

GIB = 1 << 30
RANKS = frozenset({70, 71})
FIRST, SECOND = "gpu/0000:3b:00.0", "gpu/0000:3c:00.0"


def gpu(used_gib: float = 0, *pids: int, pci: str = "0000:3b:00.0", **values: object) -> GpuReading:
    processes = tuple(GpuProcess(pid) for pid in pids)
    used = int(used_gib * GIB)
    reading = replace(HEALTHY, pci=pci, memory_used_bytes=used, processes=processes)
    return replace(reading, **values)  # type: ignore[arg-type]


def reading(*gpus: GpuReading, dead: tuple[int, ...] | None = ()) -> GpusReading:
    return GpusReading(gpus=gpus, dead_pids=dead)


def left(of: GpusReading, before_gib: float | None = 0, *devices: str) -> list[str]:
    before = {} if before_gib is None else {FIRST: int(before_gib * GIB)}
    return [one.component for one in left_memory(of, RANKS, before, GIB, devices)]


def test_memory_of_a_rank_that_is_gone_is_left_however_little_it_is() -> None:
    assert left(reading(gpu(0.1, 70))) == [FIRST]


def test_so_is_that_of_any_process_that_does_not_exist() -> None:
    assert left(reading(gpu(4, 99), dead=(99,))) == [FIRST]


def test_memory_without_any_process_is_left_if_there_was_less_before_the_ranks() -> None:
    assert left(reading(gpu(60))) == [FIRST]
    assert left(reading(gpu(60)), 59.5) == []
    assert left(reading(gpu(0.5))) == []


@pytest.mark.parametrize(
    "free",
    [
        gpu(60, 5),
        gpu(60, graphics_processes=1),
        gpu(60, mig_enabled=True),
        gpu(60, processes=None),
        gpu(60, error="the GPU is lost"),
        gpu(memory_used_bytes=None),
    ],
    ids=["another process", "a display", "slices", "no list", "lost", "no number"],
)
def test_what_others_have_or_nobody_can_say_is_not_waited_for(free: GpuReading) -> None:
    assert left(reading(free)) == []


def test_without_a_number_from_before_the_ranks_only_processes_tell() -> None:
    assert left(reading(gpu(60)), None) == []
    assert left(reading(gpu(60, 71), dead=None), None) == [FIRST]


def test_gpus_of_other_jobs_are_none_of_its_business() -> None:
    both = reading(gpu(0, 70), gpu(60, 99, pci="0000:3c:00.0"), dead=(70, 99))
    assert used_by(both, RANKS) == {FIRST}
    assert left(both, 0, FIRST) == [FIRST]
    assert left(both) == [FIRST, SECOND]


class Driver:
    """A driver that answers after a while; what it says depends on the time."""

    def __init__(self, says: Callable[[float], GpusReading], answer_s: float = 0.004) -> None:
        self._says = says
        self._answer_s = answer_s
        self.seen: GpusReading | None = says(0)
        self.reads = 0

    def newest(self) -> GpusReading | None:
        return self.seen

    async def read(self) -> GpusReading:
        self.reads += 1
        await asyncio.sleep(self._answer_s)
        return self._says(asyncio.get_running_loop().time())


class SilentDriver(Driver):
    """A driver that answers nothing any more."""

    async def read(self) -> GpusReading:
        await asyncio.sleep(5)
        raise TimeoutError("no answer from the driver")


def waited(
    driver: Driver | NoGpus, timeout_s: float = 15.0
) -> tuple[tuple[str, ...], float, DeviceRelease]:
    """Return what is left in the end, after how long, and who waited."""

    async def life() -> tuple[tuple[str, ...], float, DeviceRelease]:
        release = DeviceRelease(driver, timeout_s, GIB)
        held = await release.wait(RANKS, {FIRST: 0})
        return held, round(asyncio.get_running_loop().time(), 3), release

    return simulate(life())


def test_a_node_without_gpus_waits_for_nothing() -> None:
    assert waited(NoGpus())[:2] == ((), 0)
    assert waited(Driver(lambda _: GpusReading(absent="no driver")))[:2] == ((), 0)


def test_gpus_that_are_free_cost_one_answer_of_the_driver() -> None:
    driver = Driver(lambda _: reading(gpu(0)))
    assert waited(driver)[:2] == ((), 0.004)
    assert driver.reads == 1


def test_nobody_looks_where_nobody_wants_it() -> None:
    driver = Driver(lambda _: reading(gpu(60)))
    assert waited(driver, timeout_s=0)[:2] == ((), 0)
    assert driver.reads == 0


def test_memory_that_becomes_free_is_waited_for() -> None:
    driver = Driver(lambda now_s: reading(gpu(60 if now_s < 2 else 0)))
    held, after_s, release = waited(driver)
    assert (held, 2 <= after_s < 2.3) == ((), True)
    assert release.judgements([]) == []


def test_memory_that_does_not_become_free_is_a_finding_until_it_is() -> None:
    driver = Driver(lambda _: reading(gpu(60, 70)))
    held, after_s, release = waited(driver)
    assert (held, after_s) == ((FIRST,), 15)
    (judged,) = release.judgements([])
    assert isinstance(judged, Faulty)
    assert (judged.key, judged.finding.severity) == (FindingKey(FIRST, LEFT), Severity.DEGRADED)
    assert "processes that do not exist: 70" in judged.finding.evidence
    assert CONDITIONS[LEFT].mode is Mode.ADVISE

    driver.seen = reading(gpu(0, error="the GPU is lost"))
    (judged,) = release.judgements([judged.key])
    assert isinstance(judged, Unknown)

    driver.seen = reading(gpu(60, 5))
    (judged,) = release.judgements([judged.key])
    assert isinstance(judged, Healthy)
    assert release.judgements([]) == []


def test_a_finding_of_the_agent_before_is_over() -> None:
    release = DeviceRelease(Driver(lambda _: reading(gpu(0))), 15, GIB)
    key = FindingKey(FIRST, LEFT)
    assert [type(one) for one in release.judgements([key])] == [Healthy]


def test_a_driver_that_does_not_answer_is_waited_for_until_that_is_a_finding() -> None:
    assert waited(SilentDriver(lambda _: reading(gpu(60))))[:2] == ((), 5)


def test_what_was_in_use_before_the_next_ranks_is_what_was_read_last() -> None:
    async def life() -> None:
        driver = Driver(lambda now_s: reading(gpu(60 if now_s < 1 else 3)))
        release = DeviceRelease(driver, 15, GIB)
        assert release.memory_in_use() == {FIRST: 60 * GIB}
        await release.wait(RANKS, {FIRST: 4 * GIB})
        assert release.memory_in_use() == {FIRST: 3 * GIB}
        driver.seen = reading(gpu(7))
        assert release.memory_in_use() == {FIRST: 7 * GIB}

    simulate(life())
