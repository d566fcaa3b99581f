"""Probe workers over real threads: deadlines, reads that never return, and the common thread."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from everstep_agent.probes.read_thread import SharedThread
from everstep_agent.probes.worker import ProbeWorker
from fakes.waits import eventually

# A read that answers must not miss its deadline on a busy machine.
_PATIENT_S = 30.0


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a hanging read waits for; opened at the end, so that no thread stays."""
    gate = threading.Event()
    yield gate
    gate.set()


def _hang(gate: threading.Event) -> Callable[[], str]:
    def read() -> str:
        gate.wait()
        return "late"

    return read


def _threads(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


async def _answers(worker: ProbeWorker) -> bool:
    try:
        return await worker.call(lambda: True, _PATIENT_S)
    except TimeoutError:
        return False


def _shared(*names: str, thread_name: str = "shared") -> list[ProbeWorker]:
    thread, workers = SharedThread(thread_name), [ProbeWorker(name) for name in names]
    for worker in workers:
        worker.share(thread)
    return workers


def test_a_worker_returns_what_the_read_returns_and_raises_what_it_raises() -> None:
    async def scenario() -> None:
        worker = ProbeWorker("probe")
        assert await worker.call(lambda: 7, _PATIENT_S) == 7
        with pytest.raises(ZeroDivisionError):
            await worker.call(lambda: 1 // 0, _PATIENT_S)
        with pytest.raises(FileNotFoundError):
            await worker.call(lambda: open("/nonexistent"), _PATIENT_S)  # noqa: SIM115
        worker.close()

    asyncio.run(scenario())


def test_a_reads_own_timeout_says_more_than_the_deadline() -> None:
    def read() -> None:
        raise TimeoutError("the driver said nothing")

    async def scenario() -> None:
        with pytest.raises(TimeoutError, match="the driver said nothing"):
            await ProbeWorker("probe").call(read, _PATIENT_S)

    asyncio.run(scenario())


@pytest.mark.parametrize("shared", [False, True])
def test_a_read_that_hangs_is_abandoned_refused_meanwhile_and_read_again_when_it_returns(
    gate: threading.Event, shared: bool
) -> None:
    async def scenario() -> None:
        worker = _shared("stuck")[0] if shared else ProbeWorker("stuck")
        with pytest.raises(TimeoutError, match=r"no answer within 0\.2 s"):
            await worker.call(_hang(gate), 0.2)
        with pytest.raises(TimeoutError, match="stuck: an earlier read has not returned"):
            await worker.call(lambda: "never begun", _PATIENT_S)
        gate.set()
        await eventually(lambda: _answers(worker))

    asyncio.run(scenario())


def test_quick_reads_of_many_probes_take_one_thread() -> None:
    async def scenario() -> None:
        workers, threads = _shared("a", "b", "c"), list[int]()
        for _ in range(3):
            calls = (worker.call(threading.get_ident, _PATIENT_S) for worker in workers)
            threads = await asyncio.gather(*calls)
        assert len(set(threads)) == 1
        assert threads[0] != threading.get_ident()

    asyncio.run(scenario())


def test_one_that_hangs_keeps_the_common_thread_and_delays_nobody_for_long(
    gate: threading.Event,
) -> None:
    async def scenario() -> None:
        before, stuck, after = _shared("before", "stuck", "after")
        answers = [
            asyncio.create_task(before.call(lambda: "before", _PATIENT_S)),
            asyncio.create_task(stuck.call(_hang(gate), _PATIENT_S)),
            asyncio.create_task(after.call(lambda: "after", _PATIENT_S)),
        ]
        # Both while the third one still hangs: its deadline is not what they wait for.
        assert await answers[0] == "before"
        assert await answers[2] == "after"
        assert not answers[1].done()
        assert await after.call(lambda: "again", _PATIENT_S) == "again"
        gate.set()
        assert await answers[1] == "late"
        where = await asyncio.gather(
            *(one.call(threading.get_ident, _PATIENT_S) for one in (before, after))
        )
        assert len(set(where)) == 1

    asyncio.run(scenario())


def test_each_of_many_that_hang_has_a_thread_and_nobody_has_two(gate: threading.Event) -> None:
    async def everyone_has_one() -> bool:
        # And the common one that waits for the next quick read.
        return _threads("crowd") == 4 + 1

    async def scenario() -> None:
        workers = _shared(*(f"stuck-{number}" for number in range(4)), thread_name="crowd")
        hung = [asyncio.create_task(one.call(_hang(gate), _PATIENT_S)) for one in workers]
        await eventually(everyone_has_one)
        gate.set()
        assert await asyncio.gather(*hung) == ["late"] * 4
        for worker in workers:
            await worker.call(lambda: None, _PATIENT_S)

    asyncio.run(scenario())


def test_after_a_quick_read_a_probe_is_back_on_the_common_thread(gate: threading.Event) -> None:
    async def scenario() -> None:
        slow, quick = _shared("slow", "quick")
        pending = asyncio.create_task(slow.call(_hang(gate), _PATIENT_S))
        common = await quick.call(threading.get_ident, _PATIENT_S)
        gate.set()
        await pending

        async def is_back() -> bool:
            return await slow.call(threading.get_ident, _PATIENT_S) == common

        await eventually(is_back)

    asyncio.run(scenario())


def test_a_caller_that_is_cancelled_leaves_the_read_to_end(gate: threading.Event) -> None:
    async def scenario() -> None:
        worker = ProbeWorker("probe")
        task = asyncio.create_task(worker.call(_hang(gate), _PATIENT_S))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(TimeoutError, match="has not returned"):
            await worker.call(lambda: None, _PATIENT_S)
        gate.set()
        await eventually(lambda: _answers(worker))

    asyncio.run(scenario())
