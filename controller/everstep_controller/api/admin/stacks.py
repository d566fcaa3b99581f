"""Stacks of a job: what its ranks do at this moment, asked of the launchers of its nodes."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager

from everstep_common.orders import InspectRanks
from everstep_controller.api.admin.errors import OrderRefusedError, job_named
from everstep_controller.api.admin.ownership import check_owner
from everstep_controller.api.fleet.node_questions import NoAnswerError, NodeQuestions
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import JobRecord
from everstep_controller.runtime.runtime import Runtime
from everstep_proto.generated import admin_pb2
from everstep_proto.tls import Identity

# Answers of so many nodes, 3 KB for each rank, are in memory at once.
NODES_AT_ONCE = 64
# Whoever looks stops ranks for a moment: no more jobs at once, and each by one.
JOBS_AT_ONCE = 8


class JobStacks:
    """Inspections of jobs. Raises UnknownNameError, NotTheOwnerError and OrderRefusedError."""

    def __init__(self, runtime: Runtime, questions: NodeQuestions) -> None:
        self._runtime = runtime
        self._questions = questions
        self._inspected: set[str] = set()

    async def inspect(
        self, request: admin_pb2.InspectJobRequest, who: Identity
    ) -> AsyncGenerator[admin_pb2.NodeInspection, None]:
        """Yield what each node tells of its ranks, the fastest first."""
        job = job_named(self._runtime.state, request.job)
        await check_owner(who, job, "stack")
        if job.state not in ACTIVE:
            raise OrderRefusedError(f"{job.name} has no ranks now: it is {job.state.value}")
        with self._turn(job):
            turns = asyncio.Semaphore(NODES_AT_ONCE)
            asked = [
                asyncio.create_task(self._ask(job, place, turns))
                for place in range(len(job.generation.members))
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
            raise OrderRefusedError(f"somebody looks at {job.name} now; try again in a few seconds")
        if len(self._inspected) >= JOBS_AT_ONCE:
            raise OrderRefusedError(f"{JOBS_AT_ONCE} jobs are looked at now; try again soon")
        self._inspected.add(job.id)
        try:
            yield
        finally:
            self._inspected.discard(job.id)

    async def _ask(
        self, job: JobRecord, place: int, turns: asyncio.Semaphore
    ) -> admin_pb2.NodeInspection:
        node, ranks = job.generation.members[place], job.spec.processes_per_node
        question = InspectRanks("", job.name, job.id)
        reports: Sequence[str] = ()
        async with turns:
            try:
                told = await self._questions.inspect(node, question)
                reports, missing = told.reports, told.missing
            except NoAnswerError as error:
                missing = str(error)
        return admin_pb2.NodeInspection(
            node=node, first_rank=place * ranks, ranks=ranks, reports=reports, missing=missing
        )
