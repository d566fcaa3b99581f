"""Pair tests of this node: each ordered one is run once, in a process of its own, and answered."""

import asyncio
import json
import logging
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence

from everstep_agent.ipc.line_process import LineProcess, PidfdExits
from everstep_agent.pair_test.work import child as work_child
from everstep_agent.pair_test.work.figure import WorkDone
from everstep_common.bounds import MisfitError
from everstep_common.json_readers import reader_of
from everstep_common.orders import RunPairTest
from everstep_common.reports import PairFigure, PairTested

logger = logging.getLogger(__name__)

_COMMAND = (sys.executable, "-P", work_child.__file__)
# How many answers are remembered, so that a test that is ordered again is not run again.
_REMEMBERED = 20
_DEADLINE_S_MAX = 30.0
# Of the deadline, what the host's work and the start of the process take.
_HOST_SHARE = 0.4
_KILL_GRACE_S = 1.0


class PairTester:
    """Runner of pair tests: one at a time, and none beside ranks."""

    def __init__(
        self,
        answer: Callable[[PairTested], None],
        rank_pids: Callable[[], Sequence[int]],
        work_factor: Callable[[], float],
        command: tuple[str, ...] = _COMMAND,
    ) -> None:
        self._answer = answer
        self._rank_pids = rank_pids
        self._work_factor = work_factor
        self._command = command
        # None: it runs.
        self._answers: OrderedDict[str, PairTested | None] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._leaving: LineProcess | None = None
        self._exits = PidfdExits()
        self._cancelled = ""

    def order(self, wanted: RunPairTest) -> None:
        """Do the work once, or say why not; asked again, give the same answer."""
        if wanted.id in self._answers:
            if answer := self._answers[wanted.id]:
                self._answer(answer)
            return
        if why := self._why_not():
            self._finish(PairTested(wanted.id, refusal=why))
            return
        self._answers[wanted.id] = None
        self._cancelled = ""
        self._task = asyncio.create_task(self._run(wanted), name=f"pair-test-{wanted.id}")

    def cancel(self, why: str) -> None:
        """Stop at once what is being done: whoever comes needs the devices."""
        if self._task is not None and not self._task.done():
            self._cancelled = why
            self._task.cancel()

    def _why_not(self) -> str:
        if self._task is not None and not self._task.done():
            return "another pair test runs here"
        if self._leaving is not None and self._leaving.process.poll() is None:
            return "the process of the last pair test cannot be killed: it is stuck in a driver"
        count = len(self._rank_pids())
        return f"{count} ranks run here" if count else ""

    async def _run(self, wanted: RunPairTest) -> None:
        factor = self._work_factor()
        try:
            done = await self._work(wanted, factor)
            answer = _answer_of(wanted.id, done, injected=factor != 1.0)
        except TimeoutError:
            answer = PairTested(wanted.id, refusal="the work was not done in time")
        except (OSError, ValueError, MisfitError) as error:
            answer = PairTested(wanted.id, refusal=f"the work could not be done: {error}")
        except asyncio.CancelledError:
            if not self._cancelled:
                raise
            answer = PairTested(wanted.id, refusal=f"it was stopped: {self._cancelled}")
        self._finish(answer)

    async def _work(self, wanted: RunPairTest, factor: float) -> WorkDone:
        """Return what was measured. Raises OSError, TimeoutError, ValueError and MisfitError."""
        deadline_s = min(wanted.deadline_ns / 1e9, _DEADLINE_S_MAX)
        options = {
            "rounds": wanted.rounds,
            "factor": factor,
            "gpu_deadline_s": deadline_s * (1 - _HOST_SHARE),
        }
        said: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        child = LineProcess(
            (*self._command, json.dumps(options)),
            lambda line: None if said.done() else said.set_result(line),
            lambda end: None if said.done() else said.set_exception(OSError(f"its process: {end}")),
        )
        try:
            async with asyncio.timeout(deadline_s):
                line = await said
        finally:
            child.kill()
            # One that is stuck in a driver takes its time to die: until then none is started.
            self._leaving = child
            if await self._exits.within(child.process, _KILL_GRACE_S):
                self._leaving = None
        done: WorkDone = _read_done(json.loads(line))
        return done

    def _finish(self, answer: PairTested) -> None:
        logger.info("pair test %s: %s", answer.order_id, answer.refusal or "done")
        self._answers[answer.order_id] = answer
        while len(self._answers) > _REMEMBERED:
            self._answers.popitem(last=False)
        self._answer(answer)


_read_done = reader_of(WorkDone)


def _answer_of(order_id: str, done: WorkDone, *, injected: bool) -> PairTested:
    """Return the report for the controller: of each piece of work the median of each round."""
    rounds: dict[str, list[int]] = {}
    for figure in done.figures:
        rounds.setdefault(figure.name, []).append(round(figure.median_s * 1e9))
    figures = tuple(PairFigure(name, tuple(took_ns)) for name, took_ns in rounds.items())
    untested = tuple(f"{one.name}: {one.why}" for one in done.untested)
    return PairTested(order_id, figures, untested, injected=injected)
