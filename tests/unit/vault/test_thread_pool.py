"""Nothing is freed under a thread that works on it, however often its caller is cancelled."""

import asyncio
from threading import Event

import pytest

from everstep_agent.concurrency.thread_pool import ThreadPool


def test_one_that_is_cancelled_again_still_waits_for_its_thread() -> None:
    async def life() -> None:
        workers, begun, go_on = ThreadPool("test", 1), asyncio.Event(), Event()
        loop = asyncio.get_running_loop()

        def work() -> None:
            loop.call_soon_threadsafe(begun.set)
            go_on.wait()

        task = asyncio.create_task(workers.run(work))
        try:
            await begun.wait()
            for _ in range(3):
                task.cancel()
                done, _ = await asyncio.wait([task], timeout=0.01)
                assert not done
        finally:
            go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        workers.close()

    asyncio.run(life())
