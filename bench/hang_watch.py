"""Hang watch: how late the controller's loop is while a verdict over 16,384 reports is made.

    python bench/hang_watch.py [--ranks 16384] [--repeats 5] [--json]

The loop turns every millisecond, as it does for thousands of streams, once alone and once beside
the judge. Lateness is wall time, so it is that of this machine with all else that runs on it.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path

from localise import large_job
from table import Row, arguments, row, show

from everstep_common.codec import json_text
from everstep_common.hangs.node_reports import NodeTold
from everstep_controller.inspection.evidence import HangEvidence
from everstep_controller.inspection.hang_judgement import judge_hang

_OF_NODE = 8
_TICK_S = 0.001
_ALONE_S = 3.0
_CULPRITS = {4711, 9001}
# Agents are asked, timers come due and peers are judged by this loop.
_LATE_MS_MAX = 50.0


def main() -> int:
    """Measure, and print the table."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--ranks", type=int, default=16_384)
    options = parser.parse_args()
    told = _told(options.ranks)
    show(asyncio.run(_measure(told, options.ranks, options.repeats)), options.json)
    return 0


def _told(ranks: int) -> list[NodeTold]:
    texts = [json_text(report) for report in large_job(_CULPRITS, ranks)]
    return [
        NodeTold(f"gpu-{first // _OF_NODE:05}", first, _OF_NODE, tuple(texts[first : first + 8]))
        for first in range(0, ranks, _OF_NODE)
    ]


async def _measure(told: list[NodeTold], ranks: int, repeats: int) -> list[Row]:
    alone_ms, judged_ms, judged_s, kept_ms, kept_s = [], [], [], [], []
    for _ in range(repeats):
        alone_ms.append(await _late_ms(asyncio.sleep(_ALONE_S)))
        with tempfile.TemporaryDirectory() as folder:
            evidence = HangEvidence(Path(folder))
            began = time.process_time()
            written = asyncio.to_thread(evidence.write, told)
            kept_ms.append(await _late_ms(written))
            kept_s.append(time.process_time() - began)
            file = next(iter(Path(folder).iterdir()))  # noqa: ASYNC240 - it waits for nobody
            began = _children_s()
            judged_ms.append(await _late_ms(judge_hang(file, 0)))
            judged_s.append(_children_s() - began)
    alone = row("loop alone: lateness, at most", alone_ms, "ms")
    return [
        alone,
        row(
            f"verdict over {ranks} reports: lateness, at most",
            judged_ms,
            "ms",
            against=alone,
            target=_LATE_MS_MAX,
        ),
        row(f"verdict over {ranks} reports: CPU", judged_s, "s", target=2.0),
        row(f"evidence of {ranks} reports kept: lateness, at most", kept_ms, "ms", against=alone),
        row(f"evidence of {ranks} reports kept: CPU", kept_s, "s"),
    ]


def _children_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


async def _late_ms(work: Coroutine[object, object, object]) -> float:
    """Return by how much a tick of the loop was too late at most, while something is done."""
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work)
    worst = 0.0
    while not task.done():
        due = loop.time() + _TICK_S
        await asyncio.sleep(_TICK_S)
        worst = max(worst, loop.time() - due)
    await task
    return 1000 * worst


if __name__ == "__main__":
    sys.exit(main())
