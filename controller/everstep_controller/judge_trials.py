"""Judge trials: each judge that is a process judges a made look now and then.

So one that cannot run where it is installed is a finding before a job needs it.
"""

import asyncio
from pathlib import Path

from everstep_common.codec import json_text
from everstep_common.hangs.node_reports import NodeTold
from everstep_common.hangs.reports.rank_report import RankHangReport
from everstep_controller.collective_looks import look_judge as collective_judge
from everstep_controller.hangs import look_judge as hang_judge
from everstep_controller.hangs.evidence import HangEvidence
from everstep_controller.runtime.judge_failures import JudgeFailures, JudgeName
from everstep_controller.runtime.judge_process import JudgeError

# The agents of a fleet connect first. Then an upgrade below a running controller is found in time.
_FIRST_S, _AGAIN_S = 15.0, 3600.0


class JudgeTrials:
    """Tries the judges of looks, each with a look at one rank that tells nothing."""

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
        await self._try(JudgeName.HANG)
        await self._try(JudgeName.COLLECTIVES)

    async def _try(self, judge: JudgeName) -> None:
        report = json_text(RankHangReport(rank=0, world_size=1))
        told = [NodeTold("", 0, 1, (report,))]
        try:
            file = await asyncio.to_thread(self._evidence.write, told)
            try:
                await _judge(judge, file)
            finally:
                file.unlink(missing_ok=True)
        except (JudgeError, OSError) as error:
            self._failures.note(judge, str(error))
        else:
            self._failures.clear(judge)


async def _judge(judge: JudgeName, file: Path) -> None:
    if judge is JudgeName.HANG:
        await hang_judge.judge_look(file, 0)
    else:
        nowhere = collective_judge.LookedAt(("",), ("",), 1, (0,), (-1,))
        await collective_judge.judge_look(file, nowhere)
