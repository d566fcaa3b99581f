"""Judge trials: each judgement of a process is made now and then of a look that was made up.

So one that cannot run where it is installed is a finding before a job needs it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from everstep_common.codec import json_text
from everstep_common.hangs.node_reports import NodeTold
from everstep_common.hangs.reports.rank_report import RankHangReport
from everstep_controller.inspection.collective_judgement import LookedAt, judge_collectives
from everstep_controller.inspection.evidence import HangEvidence
from everstep_controller.inspection.hang_judgement import judge_hang
from everstep_controller.inspection.judge_process import JudgeError
from everstep_controller.runtime.judge_failures import JudgeFailures, JudgeName
from everstep_controller.slow.live import LivePlaces

# The agents of a fleet connect first. Then an upgrade below a running controller is found in time.
_FIRST_S, _AGAIN_S = 15.0, 3600.0
_NOWHERE = LookedAt(LivePlaces(("",), ("",), 1), (0,), (-1,))
_JUDGED: Mapping[JudgeName, Callable[[Path], Awaitable[object]]] = {
    JudgeName.HANG: lambda file: judge_hang(file, 0),
    JudgeName.COLLECTIVES: lambda file: judge_collectives(file, _NOWHERE),
}


class JudgeTrials:
    """Tries the judgements of looks, each with a look at one rank that tells nothing."""

    def __init__(self, evidence: HangEvidence, failures: JudgeFailures) -> None:
        self._evidence = evidence
        self._failures = failures

    async def run(self) -> None:
        """Try them until cancelled."""
        await asyncio.sleep(_FIRST_S)
        while True:
            await self.try_once()
            await asyncio.sleep(_AGAIN_S)

    async def try_once(self) -> None:
        """Try each once."""
        told = [NodeTold("", 0, 1, (json_text(RankHangReport(rank=0, world_size=1)),))]
        for name, judge in _JUDGED.items():
            try:
                async with self._evidence.written(told) as file:
                    await judge(file)
            except (JudgeError, OSError) as error:
                self._failures.note(name, str(error))
            else:
                self._failures.clear(name)
