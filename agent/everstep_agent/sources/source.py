"""Source: something that is read in a rhythm and judged; a probe with its detectors."""

from collections.abc import Awaitable, Callable, Sequence
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


Look = Callable[[], Awaitable[Sequence[Judgement]]]
# Starts listening for changes, on the event loop: takes a function to call when the source should
# be read at once, and returns a function that ends the listening.
Listen = Callable[[Callable[[], None]], Callable[[], None]]


def _nobody() -> None:
    """Do nothing."""


def _never(_wake: Callable[[], None]) -> Callable[[], None]:
    return _nobody


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One source of readings. Its look may raise OSError (TimeoutError: it hangs) and ValueError.

    ``group`` is what ``everstep-agent check --only`` calls it. ``listen`` is for sources that tell
    when something changed: then a look follows at once, and the interval is only the longest wait.
    ``told`` is called when the judgements of a look are in the findings. ``workers``: those whose
    reads are quick on a healthy node; the watch gives them one thread, as it does for a look that
    is threaded.
    """

    name: str
    group: str
    interval_s: float
    look: Look
    listen: Listen = _never
    told: Callable[[], None] = _nobody
    workers: tuple[ProbeWorker, ...] = ()


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Result of one look at one source."""

    probe: str
    judgements: tuple[Judgement, ...] = ()
    # Why the source could not be read; why it never can be with the rights that the agent has.
    trouble: str = ""
    denied: str = ""
