"""NVML conversation: matches each answer of the NVML process to the request that it names."""

import asyncio
import json
from collections.abc import Callable

from everstep_agent.detectors.gpus.reading import GpuEvent, GpusReading
from everstep_agent.ipc.line_process import LineProcess
from everstep_agent.probes.gpus.nvml_answers import Answers, NonsenseError


class ProbeError(OSError):
    """The process died or answered nonsense; one sentence says what."""


class Conversation:
    """One process and what it has said: requests with numbers, answers, and events unasked."""

    def __init__(
        self, command: tuple[str, ...], now_s: float, told: Callable[[GpuEvent], None]
    ) -> None:
        self._answers = Answers()
        self._told = told
        self._failure = ""
        self._absent: GpusReading | None = None
        self._waiting: dict[int, asyncio.Future[GpusReading]] = {}
        self.started_s = now_s
        self.answered = False
        self.child = LineProcess(command, self._line, self._fail)

    async def ask(self, number: int, complete: bool, deadline_s: float) -> GpusReading:
        """Return the answer to this request and to no other. Raises TimeoutError, ProbeError."""
        if self._absent is not None:
            return self._absent
        if self._failure:
            raise ProbeError(self._failure)
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[GpusReading] = loop.create_future()
        self._waiting[number] = waiting
        # Not asyncio.timeout: at one look a second it would cost more than the look.
        alarm = loop.call_later(deadline_s, _give_up, waiting)
        self.child.send(json.dumps({"id": number, "complete": complete}).encode() + b"\n")
        try:
            return await waiting
        finally:
            alarm.cancel()
            del self._waiting[number]

    def _line(self, line: bytes) -> None:
        if self._failure:
            return
        try:
            answer = self._answers.read_line(line)
        except NonsenseError as error:
            self._fail(f"it answered nonsense: {error}")
            return
        if answer.event is not None:
            self._told(answer.event)
        if answer.reading is None:
            return
        self.answered = True
        if answer.reading.absent:
            # Without the driver's library the process says so unasked, and ends.
            self._absent = answer.reading
        # A late answer updates what is known, but answers no other request: it is too old for it.
        for number, waiting in self._waiting.items():
            if (answer.reading.absent or answer.id == number) and not waiting.done():
                waiting.set_result(answer.reading)

    def _fail(self, why: str) -> None:
        self._failure = self._failure or f"the GPU probe's process: {why}"
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ProbeError(self._failure))


def _give_up(waiting: asyncio.Future[GpusReading]) -> None:
    if not waiting.done():
        waiting.set_exception(TimeoutError())
