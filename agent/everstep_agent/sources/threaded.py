"""A look whose read blocks: it runs on a thread of its own, with a deadline."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from everstep_agent.detectors.judgement import Judgement
from everstep_agent.probes.worker import ProbeWorker

T = TypeVar("T")


def threaded(
    name: str, deadline_s: float, read: Callable[[], T], judge: Callable[[T], Sequence[Judgement]]
) -> Callable[[], Awaitable[Sequence[Judgement]]]:
    """Return a look that reads on a thread and judges on the event loop."""
    worker = ProbeWorker(name)

    async def look() -> Sequence[Judgement]:
        return judge(await worker.call(read, deadline_s))

    return look
