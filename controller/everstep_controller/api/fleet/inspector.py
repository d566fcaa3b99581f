"""Inspector: asks all nodes of a job what its ranks do, some at once, and bounds who may."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager

from everstep_common.hangs.node_reports import NodeTold
from everstep_common.orders import InspectRanks
from everstep_controller.api.fleet.node_questions import NoAnswerError, NodeQuestions
from everstep_controller.core.model.job import JobRecord

# Answers of so many nodes, 3 KB for each rank, are on their way at once.
NODES_AT_ONCE = 64
# Of a generation that has ended launchers have looked by themselves, and only tell.
NODES_AT_ONCE_AT_END = 1024
# Whoever looks stops ranks for a moment: no more jobs at once, and each by one.
JOBS_AT_ONCE = 8
# What all nodes of a job tell together, at most: 100,000 ranks of 3 KB are 300 MB.
_TOLD_BYTES_MAX = 384 * 1024 * 1024


class BusyError(Exception):
    """A job is looked at already, or too many others are; one sentence."""


async def gather_told(answers: AsyncGenerator[NodeTold, None]) -> list[NodeTold]:
    """Return what the nodes of a job tell, those that came too late for its bound without reports.

    Raises BusyError.
    """
    told: list[NodeTold] = []
    left = _TOLD_BYTES_MAX
    async with aclosing(answers) as nodes:
        async for node in nodes:
            left -= sum(map(len, node.reports))
            told.append(node if left > 0 else _without_reports(node))
    return told


def _without_reports(node: NodeTold) -> NodeTold:
    missing = "its reports are left out: those of all nodes together are too many"
    return NodeTold(node.node, node.first_rank, node.ranks, (), missing)


class Inspector:
    """Looks at jobs, for whoever asks."""

    def __init__(self, questions: NodeQuestions) -> None:
        self._questions = questions
        self._inspected: set[str] = set()

    async def inspect(self, job: JobRecord) -> AsyncGenerator[NodeTold, None]:
        """Yield what each node of a job tells a person, the fastest first. Raises BusyError."""
        with self._turn(job):
            members = job.generation.members
            asked = self._ask_all(job, members, 0, NODES_AT_ONCE, patient=True)
            async with aclosing(asked) as nodes:
                async for told in nodes:
                    yield told

    def ask_nodes(self, job: JobRecord, nodes_at_once: int) -> AsyncGenerator[NodeTold, None]:
        """Yield the same for who bounds itself; agents whom two ask at once look once for both."""
        return self._ask_all(job, job.generation.members, 0, nodes_at_once)

    def ask_recent(self, job: JobRecord, nodes_at_once: int) -> AsyncGenerator[NodeTold, None]:
        """Yield when the ranks of each node enqueued their newest collectives."""
        return self._ask_all(job, job.generation.members, 0, nodes_at_once, recent=True)

    async def inspect_ended(
        self, job: JobRecord, generation: int, members: Sequence[str]
    ) -> AsyncGenerator[NodeTold, None]:
        """Yield what members of a generation saw when it ended because ranks gave up waiting.

        Raises BusyError.
        """
        with self._turn(job):
            asked = self._ask_all(job, members, generation, NODES_AT_ONCE_AT_END)
            async with aclosing(asked) as nodes:
                async for told in nodes:
                    yield told

    async def _ask_all(
        self,
        job: JobRecord,
        members: Sequence[str],
        generation: int,
        nodes_at_once: int,
        *,
        recent: bool = False,
        patient: bool = False,
    ) -> AsyncGenerator[NodeTold, None]:
        turns = asyncio.Semaphore(nodes_at_once)
        question = InspectRanks("", job.name, job.id, generation, recent, patient)
        ranks = job.spec.processes_per_node
        asked = [
            asyncio.create_task(self._ask(question, node, place * ranks, ranks, turns))
            for place, node in enumerate(members)
        ]
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

    async def _ask(
        self, question: InspectRanks, node: str, first: int, ranks: int, turns: asyncio.Semaphore
    ) -> NodeTold:
        async with turns:
            try:
                told = await self._questions.inspect(node, question)
            except NoAnswerError as error:
                return NodeTold(node, first, ranks, (), str(error))
        return NodeTold(node, first, ranks, told.reports, told.missing)
