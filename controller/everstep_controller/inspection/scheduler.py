"""Inspection scheduler: how many jobs are looked at at once, for what, and whose turn is next."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto

from everstep_common.round_robin import RoundRobinSemaphore
from everstep_controller.core.model.job import JobRecord


class Purpose(Enum):
    """Purpose of a look at ranks."""

    # Who holds back a job that stands still.
    HANG = auto()
    # Who held up a generation that ended: its launchers have looked by themselves, and only tell.
    END = auto()
    # When ranks of a job that steps enqueued their newest collectives.
    COLLECTIVES = auto()
    # What ranks do, for a person who waits for it.
    PERSON = auto()


@dataclass(frozen=True, slots=True)
class Bound:
    """So many jobs are looked at at once for a purpose, and so many nodes of each are asked."""

    jobs: int
    nodes: int


# The controller looks at 2,048 nodes in seconds, though each takes two. Answers to a person, 3 KB
# for each rank, are passed on as they come.
BOUNDS: Mapping[Purpose, Bound] = {
    Purpose.HANG: Bound(jobs=4, nodes=1024),
    Purpose.END: Bound(jobs=4, nodes=1024),
    Purpose.COLLECTIVES: Bound(jobs=4, nodes=1024),
    Purpose.PERSON: Bound(jobs=8, nodes=64),
}
# Whoever looks at a job whose end is to be asked about does not take longer.
_OTHERS_S = 10.0


class BusyError(Exception):
    """A job is looked at already, or too many others are; one sentence."""


class InspectionScheduler:
    """Turns of looks: users have theirs one after another; a person looks now or is refused.

    Agents whom two ask at once look once for both, but not what ranks do and how others ended: a
    job is asked for a person or about an end, not both.
    """

    def __init__(self) -> None:
        self._turns = {purpose: RoundRobinSemaphore(one.jobs) for purpose, one in BOUNDS.items()}
        # Jobs that are asked for a person or about an end, and when that is over.
        self._alone: dict[str, asyncio.Event] = {}

    @asynccontextmanager
    async def turn(self, purpose: Purpose, job: JobRecord) -> AsyncGenerator[None, None]:
        """Wait for a turn, and have it within the block. Raises BusyError."""
        if purpose is Purpose.PERSON:
            self._refuse_others(job)
        async with self._turns[purpose].turn(job.spec.uid):
            if purpose in (Purpose.HANG, Purpose.COLLECTIVES):
                yield
                return
            await self._wait_for_others(job)
            over = self._alone[job.id] = asyncio.Event()
            try:
                yield
            finally:
                del self._alone[job.id]
                over.set()

    def _refuse_others(self, job: JobRecord) -> None:
        at_once = BOUNDS[Purpose.PERSON].jobs
        if job.id in self._alone:
            raise BusyError(f"somebody looks at {job.name} now; try again in a few seconds")
        if len(self._alone) >= at_once:
            raise BusyError(f"{at_once} jobs are looked at now; try again soon")

    async def _wait_for_others(self, job: JobRecord) -> None:
        try:
            async with asyncio.timeout(_OTHERS_S):
                while (over := self._alone.get(job.id)) is not None:
                    await over.wait()
        except TimeoutError as error:
            raise BusyError(f"others have looked at {job.name} for {_OTHERS_S:g} s") from error
