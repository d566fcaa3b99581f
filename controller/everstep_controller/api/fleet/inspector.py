"""Inspector: asks all nodes of a job what its ranks do, some at once, and bounds who may."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

from everstep_common.hangs.told_by_nodes import NodeTold
from everstep_common.orders import InspectRanks
from everstep_controller.api.fleet.node_questions import NoAnswerError, NodeQuestions
from everstep_controller.core.model.job import JobRecord

# Answers of so many nodes, 3 KB for each rank, are on their way at once.
NODES_AT_ONCE = 64
# Whoever looks stops ranks for a moment: no more jobs at once, and each by one.
JOBS_AT_ONCE = 8


class BusyError(Exception):
    """A job is looked at already, or too many others are; one sentence."""


class Inspector:
    """Looks at jobs, for whoever asks."""

    def __init__(self, questions: NodeQuestions) -> None:
        self._questions = questions
        self._inspected: set[str] = set()

    async def inspect(self, job: JobRecord) -> AsyncGenerator[NodeTold, None]:
        """Yield what each node of a job tells, the fastest first. Raises BusyError."""
        with self._turn(job):
            async with aclosing(self.ask_nodes(job, NODES_AT_ONCE)) as nodes:
                async for told in nodes:
                    yield told

    async def ask_nodes(self, job: JobRecord, nodes_at_once: int) -> AsyncGenerator[NodeTold, None]:
        """Yield the same for who bounds itself; agents whom two ask at once look once for both."""
        turns = asyncio.Semaphore(nodes_at_once)
        places = range(len(job.generation.members))
        asked = [asyncio.create_task(self._ask(job, place, turns)) for place in places]
        try:
            for answer in asyncio.as_completed(asked):
                yield await answer
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    @contextmanager
    def _turn(self, job: JobRecord) -> Iterator[None]:
        if job.id in self._inspected:
            raise BusyError(f"somebody looks at {job.name} now; try again in a few seconds")
        if len(self._inspected) >= JOBS_AT_ONCE:
            raise BusyError(f"{JOBS_AT_ONCE} jobs are looked at now; try again soon")
        self._inspected.add(job.id)
        try:
            yield
        finally:
            self._inspected.discard(job.id)

    async def _ask(self, job: JobRecord, place: int, turns: asyncio.Semaphore) -> NodeTold:
        node, ranks = job.generation.members[place], job.spec.processes_per_node
        question = InspectRanks("", job.name, job.id)
        async with turns:
            try:
                told = await self._questions.inspect(node, question)
            except NoAnswerError as error:
                return NodeTold(node, place * ranks, ranks, (), str(error))
        return NodeTold(node, place * ranks, ranks, told.reports, told.missing)
