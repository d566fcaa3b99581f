"""Node questions: what agents are asked when somebody asks, and who waits for the answers."""

import asyncio
from dataclasses import replace
from itertools import count
from typing import TypeVar

from everstep_common.orders import InspectRanks, ReadOutput
from everstep_common.reports import OutputRead, RanksInspected
from everstep_controller.api.fleet.sessions import Sessions
from everstep_controller.inspection.inspector import NoAnswerError
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import to_wire

# An agent answers from memory at once, and of its ranks within three seconds (the deadlines of the
# reader and of its launcher); one of an older version never does.
_ANSWER_S = 5.0
# Where a person asks, its launcher gives a loaded machine ten.
_PATIENT_S = 13.0

Answer = OutputRead | RanksInspected
_Answer = TypeVar("_Answer", OutputRead, RanksInspected)


class NodeQuestions:
    """Questions that are not answered yet, by their ids."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._numbers = count(1)
        self._waiting: dict[tuple[str, str], asyncio.Future[Answer]] = {}

    async def read_output(self, node: str, question: ReadOutput) -> OutputRead:
        """Return what ranks wrote; the id is filled in. Raises NoAnswerError."""
        question = replace(question, read_id=str(next(self._numbers)))
        wire = to_wire(question, fleet_pb2.ReadOutput)
        message = fleet_pb2.ControllerMessage(read_output=wire)
        return await self._ask(node, question.read_id, message, OutputRead)

    async def inspect(self, node: str, question: InspectRanks) -> RanksInspected:
        """Return what ranks do; the id is filled in. Raises NoAnswerError."""
        question = replace(question, inspection_id=str(next(self._numbers)))
        wire = to_wire(question, fleet_pb2.InspectRanks)
        message = fleet_pb2.ControllerMessage(inspect=wire)
        within_s = _PATIENT_S if question.patient else _ANSWER_S
        return await self._ask(node, question.inspection_id, message, RanksInspected, within_s)

    async def _ask(
        self,
        node: str,
        number: str,
        message: fleet_pb2.ControllerMessage,
        kind: type[_Answer],
        within_s: float = _ANSWER_S,
    ) -> _Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[node, number] = answer
        try:
            if not self._sessions.send(node, message):
                raise NoAnswerError(f"the agent of {node} is away, and it alone could tell")
            async with asyncio.timeout(within_s):
                told = await answer
        except TimeoutError as error:
            raise NoAnswerError(
                f"the agent of {node} does not answer; it may be of an older version"
            ) from error
        finally:
            del self._waiting[node, number]
        if not isinstance(told, kind):
            raise NoAnswerError(f"the agent of {node} answers another question")
        return told

    def take_answer(self, node: str, number: str, answer: Answer) -> None:
        """Take an agent's answer; one that nobody waits for any more, or never did, is left out."""
        waiting = self._waiting.get((node, number))
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)
