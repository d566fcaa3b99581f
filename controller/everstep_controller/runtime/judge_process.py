"""Judge process: a judge of the controller runs in a process of its own, within a deadline.

``python -m MODULE FILE`` prints what it found of the file.
"""

import asyncio
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from everstep_common.process_priority import give_way

logger = logging.getLogger(__name__)

T = TypeVar("T")

# 16,384 ranks take two seconds, and a controller has other work.
_DEADLINE_S = 60.0
_NICE = 5
# proc_pid_oom_score_adj(5): up to 1000, which is killed first of all.
_OOM_SCORE = 900


class JudgeError(Exception):
    """The process of the judge has failed; one sentence."""


async def judge_file(
    module: str,
    file: Path,
    read: Callable[[bytes], T],
    told: bytes = b"",
    deadline_s: float = _DEADLINE_S,
) -> T:
    """Return what a judge prints of a file, in a process of its own, as read. Raises JudgeError.

    ``told`` comes to it on standard input.
    """
    printed = await _printed_by(module, file, told, deadline_s)
    try:
        return await asyncio.to_thread(read, printed)
    except (ValueError, LookupError, TypeError) as error:
        raise JudgeError(f"the judge's answer cannot be read: {error!r}") from error


async def _printed_by(module: str, file: Path, told: bytes, deadline_s: float) -> bytes:
    command = (sys.executable, "-m", module, str(file))
    pipe = asyncio.subprocess.PIPE
    try:
        # What ends the controller from a terminal is no failure of a judge.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
    except OSError as error:
        raise JudgeError(f"the judge cannot be started: {error}") from error
    try:
        async with asyncio.timeout(deadline_s):
            out, errors = await process.communicate(told)
    except TimeoutError as error:
        raise JudgeError(f"no verdict within {deadline_s:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    last = errors.decode(errors="replace").strip().rpartition("\n")[2]
    if process.returncode and process.returncode < 0:
        raise JudgeError(f"the judge was killed by signal {-process.returncode}")
    if process.returncode:
        raise JudgeError(f"the judge exited {process.returncode}: {last}")
    if last:
        logger.warning("%s: %s", module, last)
    return out


def let_controller_first() -> None:
    """Let the controller have processors and memory first: what is judged is a job's own word."""
    for refused in give_way(_NICE, _OOM_SCORE):
        print(f"a judge competes with the controller: {refused}", file=sys.stderr)
