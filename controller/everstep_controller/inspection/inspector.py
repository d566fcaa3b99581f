"""Inspector: the one way in which ranks are asked what they do, and what they tell is judged."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from everstep_common.hangs.node_reports import NodeTold
from everstep_common.hangs.reports.rank_report import ProcessEnding
from everstep_common.orders import InspectRanks
from everstep_common.reports import RanksInspected
from everstep_controller.core.model.job import JobRecord
from everstep_controller.inspection.evidence import HangEvidence
from everstep_controller.inspection.judge_process import JudgeError
from everstep_controller.inspection.scheduler import (
    BOUNDS,
    BusyError,
    InspectionScheduler,
    Purpose,
)
from everstep_controller.runtime.judge_failures import JudgeFailures, JudgeName

logger = logging.getLogger(__name__)

T = TypeVar("T")
# Keeps the evidence of a look, and returns its hash. Raises OSError.
Keep = Callable[[], str]

# What all nodes of a job tell together, at most: 100,000 ranks of 3 KB are 300 MB.
_TOLD_BYTES_MAX = 384 * 1024 * 1024
_JUDGES = {
    Purpose.HANG: JudgeName.HANG,
    Purpose.END: JudgeName.END,
    Purpose.COLLECTIVES: JudgeName.COLLECTIVES,
}


class NoAnswerError(Exception):
    """A node does not answer; one sentence."""


class RankQuestions(Protocol):
    """Whoever asks a node what its ranks do."""

    async def inspect(self, node: str, question: InspectRanks) -> RanksInspected:
        """Return what they do; the id is filled in. Raises NoAnswerError."""
        ...


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What the ranks of a job are asked: all nodes of a generation, in the order of ranks."""

    purpose: Purpose
    job: JobRecord
    members: tuple[str, ...]
    # One that has ended; 0: what ranks do now.
    generation: int = 0
    # How ranks of it ended, by rank, as far as the controller has heard of it.
    endings: tuple[tuple[int, ProcessEnding], ...] = ()

    @classmethod
    def now(cls, purpose: Purpose, job: JobRecord) -> "Inquiry":
        """Return that about what the ranks of a job do now."""
        return cls(purpose, job, tuple(job.generation.members))

    @property
    def question(self) -> InspectRanks:
        """Return what each node is asked."""
        recent = self.purpose is Purpose.COLLECTIVES
        # What is told of an end is kept, and holds nobody up.
        patient = self.purpose in (Purpose.PERSON, Purpose.END)
        return InspectRanks("", self.job.name, self.job.id, self.generation, recent, patient)


class Inspector:
    """Looks at the ranks of jobs, for whoever asks."""

    def __init__(
        self, questions: RankQuestions, evidence: HangEvidence, failures: JudgeFailures
    ) -> None:
        self._questions = questions
        self._evidence = evidence
        self._failures = failures
        self._scheduler = InspectionScheduler()

    async def ask(self, inquiry: Inquiry) -> AsyncGenerator[NodeTold, None]:
        """Yield what each node tells, the fastest first. Raises BusyError."""
        async with (
            self._scheduler.turn(inquiry.purpose, inquiry.job),
            aclosing(self._answers(inquiry)) as answers,
        ):
            async for told in answers:
                yield told

    async def judge(
        self,
        inquiry: Inquiry,
        judge: Callable[[Path], Awaitable[T]],
        conclude: Callable[[T, Keep], Awaitable[None]],
        is_wanted: Callable[[], bool],
    ) -> str:
        """Have what ranks tell judged and concluded from; return why that failed, "" if not.

        ``is_wanted`` is asked when it is its turn. A look that breaks, by what ranks told, breaks
        nothing else; that it failed is noted.
        """
        try:
            async with self._scheduler.turn(inquiry.purpose, inquiry.job):
                if is_wanted():
                    await self._judge(inquiry, judge, conclude)
        except BusyError:
            return ""
        except (JudgeError, OSError) as error:
            why = str(error)
        except Exception as error:
            logger.exception("a look at the ranks of %s broke", inquiry.job.name)
            why = repr(error)
        else:
            return ""
        self._failures.note(_JUDGES[inquiry.purpose], why, inquiry.job.id)
        return why

    async def _judge(
        self,
        inquiry: Inquiry,
        judge: Callable[[Path], Awaitable[T]],
        conclude: Callable[[T, Keep], Awaitable[None]],
    ) -> None:
        told = await self._gather(inquiry)
        # That no rank tells of collectives is a finding, too.
        if (
            not any(node.reports or node.endings for node in told)
            and inquiry.purpose is not Purpose.COLLECTIVES
        ):
            return
        async with self._evidence.written(told) as file:
            found = await judge(file)
            self._failures.clear(_JUDGES[inquiry.purpose], inquiry.job.id)
            await conclude(found, lambda: self._evidence.keep(file))

    async def _gather(self, inquiry: Inquiry) -> list[NodeTold]:
        """Return what the nodes of a job tell; without reports where that is too much."""
        told: list[NodeTold] = []
        left = _TOLD_BYTES_MAX
        async with aclosing(self._answers(inquiry)) as nodes:
            async for node in nodes:
                left -= sum(map(len, node.reports))
                kept = node if left > 0 else _without_reports(node)
                ranks = range(node.first_rank, node.first_rank + node.ranks)
                ended = tuple(one for one in inquiry.endings if one[0] in ranks)
                told.append(replace(kept, endings=ended))
        return told

    async def _answers(self, inquiry: Inquiry) -> AsyncGenerator[NodeTold, None]:
        turns = asyncio.Semaphore(BOUNDS[inquiry.purpose].nodes)
        asked = [
            asyncio.create_task(self._ask(inquiry, place, turns))
            for place in range(len(inquiry.members))
        ]
        try:
            for answer in asyncio.as_completed(asked):
                yield await answer
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _ask(self, inquiry: Inquiry, place: int, turns: asyncio.Semaphore) -> NodeTold:
        node, ranks = inquiry.members[place], inquiry.job.spec.processes_per_node
        async with turns:
            try:
                told = await self._questions.inspect(node, inquiry.question)
            except NoAnswerError as error:
                return NodeTold(node, place * ranks, ranks, (), str(error))
        return NodeTold(node, place * ranks, ranks, told.reports, told.missing)


def _without_reports(node: NodeTold) -> NodeTold:
    missing = "its reports are left out: those of all nodes together are too many"
    return NodeTold(node.node, node.first_rank, node.ranks, (), missing)
