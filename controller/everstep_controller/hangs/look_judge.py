"""Hang judge: a process of its own makes the verdict on a look at thousands of ranks.

What ranks tell is their job's word, and takes seconds to read: beside the event loop it would stop
that for as long as Python collects its garbage.
``python -m everstep_controller.hangs.look_judge FILE``.
"""

import gc
import json
import sys
from pathlib import Path

from everstep_common.codec import from_json, to_json
from everstep_common.hangs.looks import Look, judge_told
from everstep_common.hangs.reports.verdict import HangVerdict
from everstep_controller.hangs.evidence import read_told
from everstep_controller.runtime.judge_process import judge_file, let_controller_first


async def judge_look(file: Path, at_ns: int) -> Look:
    """Return what a look found that was written to a file. Raises JudgeError."""
    return await judge_file(__name__, file, lambda printed: _look_of(printed, at_ns))


def _look_of(printed: bytes, at_ns: int) -> Look:
    found = json.loads(printed)
    verdict = from_json(HangVerdict, found["verdict"])
    marks = dict(zip(found["ranks"], zip(*found["places"], strict=True), strict=True))
    devices = found["devices"]
    return Look(
        at_ns,
        verdict,
        tuple(found["stuck"]),
        marks,
        pause=found["pause"],
        place=found["place"],
        seen=tuple(found["seen"]),
        devices=None if devices is None else tuple(devices),
        held_ms=found["held_ms"],
        works=found["works"],
    )


def main() -> int:
    """Print what a look found."""
    let_controller_first()
    gc.disable()  # nothing is in a circle, and the process ends soon
    look = judge_told(read_told(Path(sys.argv[1])))
    found = {
        "verdict": to_json(look.verdict),
        "stuck": look.stuck,
        "ranks": list(look.marks),
        # By their steps, and by their groups.
        "places": [[mark[part] for mark in look.marks.values()] for part in (0, 1)],
        "pause": look.pause,
        "seen": look.seen,
        "devices": look.devices,
        "place": look.place,
        "held_ms": look.held_ms,
        "works": look.works,
    }
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
