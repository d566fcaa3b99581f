"""Output reads: questions to agents for what ranks wrote lately, and who waits for the answers."""

import asyncio
from dataclasses import replace
from itertools import count

from everstep_common.orders import ReadOutput
from everstep_common.reports import OutputRead
from everstep_controller.api.fleet.sessions import Sessions
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import to_wire

# An agent answers at once, from memory; one of an older version never does.
_ANSWER_S = 5.0


class OutputUnavailableError(Exception):
    """A node's output cannot be read now; one sentence."""


class NodeQuestions:
    """Questions that are not answered yet, by their ids."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._numbers = count(1)
        self._waiting: dict[tuple[str, str], asyncio.Future[OutputRead]] = {}

    async def read(self, node: str, question: ReadOutput) -> OutputRead:
        """Return what a node answers; the id is filled in. Raises OutputUnavailableError."""
        question = replace(question, read_id=str(next(self._numbers)))
        wire = to_wire(question, fleet_pb2.ReadOutput)
        key = (node, question.read_id)
        answer: asyncio.Future[OutputRead] = asyncio.get_running_loop().create_future()
        self._waiting[key] = answer
        try:
            if not self._sessions.send(node, fleet_pb2.ControllerMessage(read_output=wire)):
                raise OutputUnavailableError(f"the agent of {node} is away, and has its output")
            async with asyncio.timeout(_ANSWER_S):
                return await answer
        except TimeoutError as error:
            raise OutputUnavailableError(
                f"the agent of {node} does not tell output; it may be of an older version"
            ) from error
        finally:
            del self._waiting[key]

    def take_answer(self, node: str, read: OutputRead) -> None:
        """Take an agent's answer; one that nobody waits for any more, or never did, is left out."""
        answer = self._waiting.get((node, read.read_id))
        if answer is not None and not answer.done():
            answer.set_result(read)
