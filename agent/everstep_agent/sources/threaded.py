"""Threaded reading: a source's blocking read, run on a thread with a deadline."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from everstep_agent.probes.worker import ProbeWorker
from everstep_common.judging.judgement import Judgement

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ThreadedLook(Generic[T]):
    """Reads on a thread and judges on the event loop."""

    worker: ProbeWorker
    deadline_s: float
    read: Callable[[], T]
    judge: Callable[[T], Sequence[Judgement]]

    async def __call__(self) -> Sequence[Judgement]:
        """Look once. Raises TimeoutError, and whatever the read raises."""
        return self.judge(await self.worker.call(self.read, self.deadline_s))


def threaded(
    name: str, deadline_s: float, read: Callable[[], T], judge: Callable[[T], Sequence[Judgement]]
) -> ThreadedLook[T]:
    """Return a look that shares a thread with others as long as its reads are quick."""
    return ThreadedLook(ProbeWorker(name), deadline_s, read, judge)
