"""Judge process: the judge of what ranks tell runs as a child of the controller, in a deadline."""

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

# 16,384 ranks take two seconds, and a controller has other work.
_DEADLINE_S = 60.0
_JUDGE = "everstep_controller.inspection.judge"


class JudgeError(Exception):
    """The process of the judge has failed; one sentence."""


async def judge_file(kind: str, file: Path, read: Callable[[bytes], T], besides: str = "") -> T:
    """Return what the judge finds in a file of what nodes told, as read. Raises JudgeError.

    ``besides`` is what a judgement of this kind needs as well.
    """
    return await ask_judge((_JUDGE, kind, str(file)), read, besides.encode())


async def ask_judge(
    program: Sequence[str],
    read: Callable[[bytes], T],
    told: bytes = b"",
    deadline_s: float = _DEADLINE_S,
) -> T:
    """Return what a module prints that runs as a process with arguments. Raises JudgeError."""
    printed = await _printed_by(program, told, deadline_s)
    try:
        return await asyncio.to_thread(read, printed)
    except (ValueError, LookupError, TypeError) as error:
        raise JudgeError(f"the judge's answer cannot be read: {error!r}") from error


async def _printed_by(program: Sequence[str], told: bytes, deadline_s: float) -> bytes:
    pipe = asyncio.subprocess.PIPE
    try:
        # What ends the controller from a terminal is no failure of a judge.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *program),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
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
        logger.warning("%s: %s", program[0], last)
    return out
