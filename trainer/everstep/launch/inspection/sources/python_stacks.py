"""Python stacks of a rank as text, from three sources: names and lines, never values."""

import contextlib
import ctypes
import json
import os
import re
import stat
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from everstep.launch.inspection.sources.process_look import SERVER_THREADS
from everstep.rank.interpreter.everstep_rank_opening import STACKS_SIGNAL
from everstep_common.hangs.reports.rank_report import StackFrames
from everstep_common.printable import printable

# faulthandler's own: https://docs.python.org/3/library/faulthandler.html
_THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+\b.*\(most recent call first\):")
_FRAME = re.compile(r'  File "([^"\n]*)", line (\d+|\?\?\?) in (.*)')
# c10's name for the file that its handler writes the stacks into (mkstemp).
_TORCH_FILE = re.compile(r"torch-dump_traceback\w{6}")
_FRAMES_MAX = 24
_FRAME_MAX = 120
_FILE_MAX = 256 * 1024
_POLL_S = 0.01


def main_stack(text: str) -> StackFrames:
    """Return the main thread's frames of what faulthandler wrote: the thread that it lists last."""
    frames: list[str] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            frames = []
        elif found := _FRAME.match(line):
            frames.append(frame_text(*found.groups()))
    return both_ends(frames)


def both_ends(frames: Sequence[str]) -> StackFrames:
    """Return the frames, or of a deep stack the innermost and the outermost ones."""
    if len(frames) <= _FRAMES_MAX:
        return tuple(frames)
    outermost = _FRAMES_MAX // 2
    innermost = _FRAMES_MAX - outermost - 1
    left_out = f"... {len(frames) - _FRAMES_MAX + 1} more frames"
    return *frames[:innermost], left_out, *frames[-outermost:]


def frame_text(path: str, line: str | int, function: str) -> str:
    """Return a frame as "train.py:120 forward"."""
    return printable(f"{os.path.basename(path)}:{line} {function}")[:_FRAME_MAX]


def py_spy_stack(answer: str) -> StackFrames:
    """Return the main thread's frames of ``py-spy dump --json``. Raises ValueError."""
    try:
        threads = json.loads(answer)
        main = next(one for one in threads if one["os_thread_id"] == one["pid"])
        return both_ends(
            [
                frame_text(str(one["filename"]), int(one["line"]), str(one["name"]))
                for one in main["frames"]
            ]
        )
    except (LookupError, TypeError, StopIteration, RecursionError, OverflowError) as error:
        raise ValueError("py-spy's answer is not as expected") from error


def remove_unanswered(pid: int, proc: Path = Path("/proc")) -> None:
    """Remove the files that torch keeps in TMPDIR for stacks that nobody waits for any more.

    It removes one when it has answered; a rank that holds its GIL is killed before that.
    """
    with contextlib.suppress(OSError):
        for link in (proc / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                path = Path(os.readlink(link))
                if _TORCH_FILE.fullmatch(path.name):
                    path.unlink(missing_ok=True)


def by_py_spy(program: str, pid: int, within_s: float) -> StackFrames:
    """Read the stack from outside, without stopping the process. Raises OSError, ValueError."""
    command = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=within_s, check=True, text=True)
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"py-spy took more than {within_s:.1f} s") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or [""])[-1]
        raise ValueError(f"py-spy: {printable(last)[:200]}") from error
    return py_spy_stack(done.stdout)


def by_signal(
    pid: int, path: Path, within_s: float, proc: Path = Path("/proc"), told_thread: int = 0
) -> StackFrames:
    """Have the process write its stacks, which needs no GIL. Raises OSError, ValueError.

    Who has no handler for the signal would die of it, so that is looked at first. ``told_thread``
    is one that the process says is its worker server's, where the threads of that have no name.
    """
    thread = _idle_thread(proc / str(pid), told_thread)
    if not _handles(proc / str(pid) / "status"):
        raise ValueError("the process has no handler for the signal")
    ends_s = time.monotonic() + within_s
    with _own_file(path) as file:
        before = os.fstat(file.fileno()).st_size
        if ctypes.CDLL(None, use_errno=True).tgkill(pid, thread, STACKS_SIGNAL) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        size = before
        while time.monotonic() < ends_s:
            time.sleep(_POLL_S)
            grown = os.fstat(file.fileno()).st_size
            if grown == size > before:
                break
            size = grown
        file.seek(before)
        text = file.read(_FILE_MAX).decode(errors="replace")
    if not text:
        raise ValueError("the process did not write its stacks")
    return main_stack(text)


def _own_file(path: Path) -> BinaryIO:
    """Open a file that is one, and this user's. Raises OSError, ValueError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.fdopen(os.open(path, flags), "rb")
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        file.close()
        raise ValueError(f"{path.name} is not a file of this user")
    return file


def _idle_thread(folder: Path, told: int) -> int:
    # A signal to one that answers looks interrupts nothing that the script does.
    for thread in sorted(folder.glob("task/*"), key=lambda one: -int(one.name)):
        with contextlib.suppress(OSError):  # a thread that ended
            if (thread / "comm").read_text().strip() == SERVER_THREADS:
                return int(thread.name)
    if told and told != int(folder.name) and (folder / "task" / str(told)).exists():
        return told
    raise ValueError("no thread of its worker server could take the signal")


def _handles(status: Path) -> bool:
    masks = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    bit = 1 << (STACKS_SIGNAL - 1)
    return bool(int(masks.get("SigCgt", "0"), 16) & bit)
