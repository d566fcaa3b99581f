"""Task supervision: a task of the daemon that fails is reported as a finding and started again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine

from everstep_agent.concurrency.common_tick import tick
from everstep_agent.detectors.agent import judge_task
from everstep_common.judging.judgement import Judgement
from everstep_common.systemd import notify, watchdog_interval_s

logger = logging.getLogger(__name__)

_RESTART_S = 1.0
# How long a restarted task has to run before the finding about it is cleared.
_FINE_S = 60.0
# gRPC raises CancelledError out of a call that another task has cancelled, at whoever uses it.
_OF_ITSELF = "it was cancelled by what it waited for"


async def keep_running(
    name: str, work: Callable[[], Awaitable[None]], report: Callable[[list[Judgement]], None]
) -> None:
    """Run ``work`` until cancelled. A task without end that ends is a fault as well.

    A failure is logged when it is not the one before: some are there until somebody acts.
    """
    loop, logged = asyncio.get_running_loop(), ""
    while True:
        began_s = loop.time()
        fine = asyncio.create_task(_report_fine(name, report), name=f"{name}-fine")
        error: Exception | None = None
        try:
            await work()
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            error = asyncio.InvalidStateError(_OF_ITSELF)
        except Exception as caught:  # noqa: BLE001  (the one place that catches everything)
            error = caught
        finally:
            fine.cancel()
        failure = _failure(error)
        if failure != logged or loop.time() - began_s > _FINE_S:
            _log_failure(name, failure, error)
            logged = failure
        report([judge_task(name, failure)])
        await asyncio.sleep(_RESTART_S)


def _is_cancelled() -> bool:
    """Return whether somebody has cancelled this task."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _failure(error: Exception | None) -> str:
    if error is None:
        return "it ended"
    return str(error) if _explains_itself(error) else f"{type(error).__name__}: {error}"


def _explains_itself(error: Exception) -> bool:
    """Return whether an error is a sentence for people, such as that of a port in use."""
    return isinstance(error, OSError) and error.errno is None and bool(str(error))


def _log_failure(name: str, failure: str, error: Exception | None) -> None:
    traced = None if error is None or _explains_itself(error) else error
    logger.error(
        "task %s failed: %s; it is tried again each second", name, failure, exc_info=traced
    )


async def first_to_end(*works: Coroutine[object, object, None]) -> None:
    """Run all until the first one ends, which ends the others. Raises what that one raised.

    InvalidStateError: it was cancelled, and nobody has cancelled it.

    Not a task group: those of Python 3.11 forget that they were cancelled themselves when one of
    their tasks fails at the same moment, and then an agent does not stop.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in sorted(done, key=asyncio.Task.cancelled):
        if task.cancelled():
            raise asyncio.InvalidStateError(_OF_ITSELF)
        task.result()


def first_error(error: BaseException) -> BaseException:
    """Return the first error in a group of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def feed_watchdog() -> None:
    """Tell the service manager, until cancelled, that the event loop runs."""
    interval_s = watchdog_interval_s()
    while True:
        notify("WATCHDOG=1")
        await tick(interval_s or 3600.0)


async def _report_fine(name: str, report: Callable[[list[Judgement]], None]) -> None:
    await asyncio.sleep(_FINE_S)
    report([judge_task(name, "")])
