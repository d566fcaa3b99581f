"""Keeps the tasks of the daemon running: one that fails is a finding and is started again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from everstep_agent.detectors.agent import judge_task
from everstep_agent.detectors.judgement import Judgement

logger = logging.getLogger(__name__)

_RESTART_S = 1.0
# It has to run for so long before its finding is cleared.
_FINE_S = 60.0


async def keep_running(
    name: str, work: Callable[[], Awaitable[None]], report: Callable[[list[Judgement]], None]
) -> None:
    """Run ``work`` until cancelled. A task without end that ends is a fault as well."""
    while True:
        fine = asyncio.create_task(_report_fine(name, report), name=f"{name}-fine")
        try:
            await work()
            failure = "it ended"
        except Exception as error:  # the one place that catches everything
            failure = f"{type(error).__name__}: {error}"
            logger.exception("task %s failed; it starts again", name)
        finally:
            fine.cancel()
        report([judge_task(name, failure)])
        await asyncio.sleep(_RESTART_S)


async def _report_fine(name: str, report: Callable[[list[Judgement]], None]) -> None:
    await asyncio.sleep(_FINE_S)
    report([judge_task(name, "")])
