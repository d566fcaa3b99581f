"""Each program that the controller starts as a process of its own, started once as it does.

``python controller_children.py NAME FOLDER``; what it makes is below the folder.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path

from everstep_common.codec import json_text
from everstep_common.hangs.node_reports import NodeTold
from everstep_common.hangs.reports.rank_report import ProcessFacts, ProcessState, RankHangReport
from everstep_controller.collective_looks import look_judge as collective_judge
from everstep_controller.hangs import look_judge as hang_judge
from everstep_controller.hangs.evidence import HangEvidence


def _written(folder: Path) -> Path:
    """Return what a look at one rank told, which is stopped."""
    stopped = RankHangReport(rank=0, world_size=1, process=ProcessFacts(state=ProcessState.STOPPED))
    return HangEvidence(folder).write([NodeTold("n0", 0, 1, (json_text(stopped),))])


async def _hang_judge(folder: Path) -> None:
    look = await hang_judge.judge_look(_written(folder), 1)
    assert look.stuck == (0,)


async def _collective_judge(folder: Path) -> None:
    looked_at = collective_judge.LookedAt(("n0",), ("",), 1, (0,), (1000,))
    await collective_judge.judge_look(_written(folder), looked_at)


# By the file that runs as a process.
CHILDREN: Mapping[str, Callable[[Path], Coroutine[None, None, None]]] = {
    hang_judge.__file__: _hang_judge,
    collective_judge.__file__: _collective_judge,
}

if __name__ == "__main__":
    asyncio.run(CHILDREN[sys.argv[1]](Path(sys.argv[2])))
