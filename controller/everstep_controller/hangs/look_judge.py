"""Hang judge: a process of its own makes the verdict on a look at thousands of ranks.

What ranks tell is their job's word, and takes seconds to read: beside the event loop it would stop
that for as long as Python collects its garbage.
``python -m everstep_controller.hangs.look_judge FILE``.
"""

import asyncio
import gc
import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from everstep_common.codec import from_json, to_json
from everstep_common.hangs.looks import Look, judge_told
from everstep_common.hangs.reports.verdict import HangVerdict
from everstep_controller.hangs.evidence import read_told

# 16,384 ranks take two seconds, and a controller has other work.
_DEADLINE_S = 60.0
_NICE = 5
# proc_pid_oom_score_adj(5): up to 1000, which is killed first of all.
_OOM_SCORE = 900


class JudgeError(Exception):
    """The process of the judge has failed; one sentence."""


async def judge_look(file: Path, at_ns: int) -> Look:
    """Return what a look found that was written to a file. Raises JudgeError."""
    return await asyncio.to_thread(_look_of, await printed_by(__name__, file), at_ns)


async def printed_by(module: str, file: Path, told: bytes = b"") -> bytes:
    """Return what a judge prints of a file, in a process of its own. Raises JudgeError.

    ``told`` comes to it on standard input.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        str(file),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_DEADLINE_S):
            out, errors = await process.communicate(told)
    except TimeoutError as error:
        raise JudgeError(f"no verdict within {_DEADLINE_S:.0f} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise JudgeError(f"the judge exited {process.returncode}: {last}")
    return out


def _look_of(printed: bytes, at_ns: int) -> Look:
    found = json.loads(printed)
    verdict = from_json(HangVerdict, found["verdict"])
    marks = dict(zip(found["ranks"], found["places"], strict=True))
    devices = found["devices"]
    return Look(
        at_ns,
        verdict,
        tuple(found["stuck"]),
        marks,
        pause=found["pause"],
        seen=tuple(found["seen"]),
        devices=None if devices is None else tuple(devices),
    )


def give_way(oom_score: Path = Path("/proc/self/oom_score_adj")) -> None:
    """Let the controller have processors and memory first: what is judged is a job's own word."""
    os.nice(_NICE)
    with suppress(OSError):
        oom_score.write_text(str(_OOM_SCORE))


def main() -> int:
    """Print what a look found."""
    give_way()
    gc.disable()  # nothing is in a circle, and the process ends soon
    look = judge_told(read_told(Path(sys.argv[1])))
    found = {
        "verdict": to_json(look.verdict),
        "stuck": look.stuck,
        "ranks": list(look.marks),
        "places": list(look.marks.values()),
        "pause": look.pause,
        "seen": look.seen,
        "devices": look.devices,
    }
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
