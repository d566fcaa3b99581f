"""Signals of the launcher: handled in its selector loop, or forwarded to its ranks.

A batch system announces the end of its time with SIGUSR1 or SIGUSR2, and tells what it started
itself (Slurm's proctrack/cgroup: children of slurmstepd). Whoever has no handler for it dies of it.
"""

import contextlib
import os
import selectors
import signal
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

_WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD)


class SignalPipe:
    """Turns the signals that a launcher watches into calls from its selector loop."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        on_signal: Callable[[signal.Signals], None],
        more: Iterable[signal.Signals] = (),
    ) -> None:
        self._selector = selector
        self._on_signal = on_signal
        self._read_end, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        selector.register(self._read_end, selectors.EVENT_READ, self._read)
        self._wakeup_before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        self._before = {
            number: signal.signal(number, _nothing)
            for number in {*_WATCHED, *more}
            if signal.getsignal(number) is not signal.SIG_IGN  # nohup, or a shell's background job
        }

    def close(self) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        self._selector.unregister(self._read_end)
        os.close(self._read_end)
        os.close(self._write_end)

    def _read(self) -> None:
        for number in os.read(self._read_end, 4096):
            self._on_signal(signal.Signals(number))


def _nothing(_number: int, _frame: object) -> None:
    """Only the byte in the pipe matters."""


# What a launcher gets for its ranks, unless --signals-to-handle says that the job ends by it.
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)


def pass_on(number: signal.Signals, ranks: Mapping[int, int], proc: Path = Path("/proc")) -> str:
    """Send a signal to each rank (rank → process id) that handles it; return what was done."""
    told = []
    for rank, pid in sorted(ranks.items()):
        found = list(handlers(number, pid, proc))
        for handler in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(handler, number)
        if found:
            told.append(rank)
    if not ranks:
        return f"{number.name} does nothing: no rank runs here now"
    if not told:
        return f"{number.name} does nothing: no rank here has a handler for it, and would die of it"
    left_out = [rank for rank in sorted(ranks) if rank not in told]
    others = f"; {_listed(left_out)} without a handler for it" if left_out else ""
    return f"{number.name} is passed on to {_listed(told)}{others}"


def handlers(number: signal.Signals, pid: int, proc: Path) -> Iterable[int]:
    """Yield the process, or those that it has started (as a shell does), that handle a signal.

    Data loaders inherit the handlers of their rank, and are not told besides it.
    """
    if _handles(number, pid, proc):
        yield pid
        return
    for child in _children(pid, proc):
        yield from handlers(number, child, proc)


def _handles(number: signal.Signals, pid: int, proc: Path) -> bool:
    try:
        status = (proc / str(pid) / "status").read_text(errors="replace")
    except OSError:  # it has ended
        return False
    # proc(5): a mask of the signals that are caught, in hexadecimal digits.
    caught = next((line[7:] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)


def _children(pid: int, proc: Path) -> list[int]:
    found: list[int] = []
    for path in (proc / str(pid) / "task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that ended
            found += map(int, path.read_text().split())
    return found


def _listed(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
