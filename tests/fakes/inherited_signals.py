"""Signals that a process ignores from its start, because its parent ignored them.

``nohup`` ignores SIGHUP, and a shell without job control has SIGINT and SIGQUIT ignored in what it
starts in the background. A handler is not inherited: the started program has the default instead.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FROM_A_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


@contextmanager
def ignoring(*numbers: signal.Signals) -> Iterator[None]:
    """Start processes that ignore these signals."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def start_processes_as_from_a_terminal() -> None:
    """Let nothing that is ignored here be ignored in what is started; here it has no effect yet."""
    for number in _FROM_A_TERMINAL:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def ignored(pid: int) -> set[signal.Signals]:
    """Return which of the signals that a terminal sends a process ignores."""
    status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    # proc(5): a mask in hexadecimal digits.
    mask = next(int(line[7:], 16) for line in status.splitlines() if line.startswith("SigIgn:"))
    return {number for number in _FROM_A_TERMINAL if mask >> (number - 1) & 1}
