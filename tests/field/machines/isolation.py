"""Isolation: a program in namespaces of its own, that ends with all it started when asked to."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, TracebackType

_ASKED_BY = (signal.SIGINT, signal.SIGTERM)
_POLL_S = 0.2


class AskedToEndError(Exception):
    """This process was asked to end before its work was done."""


class EndRequests:
    """How often this process was asked to end (SIGINT, SIGTERM) while this was entered."""

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> "EndRequests":
        for one in _ASKED_BY:
            self._before[one] = signal.signal(one, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)

    def check(self) -> None:
        """Raise AskedToEndError if it was asked to end."""
        if self.count:
            raise AskedToEndError

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


def run_isolated(
    command: Sequence[str],
    requests: EndRequests,
    *,
    own_network: bool = False,
    grace_s: float = 0.0,
    thaw: Callable[[], object] = lambda: None,
) -> int:
    """Run a program in namespaces of its own; return its exit code when nothing of it is left.

    When this process is asked to end, the program gets SIGTERM; it is killed when it has not ended
    within its grace, or at a second request. Frozen processes are not killed: ``thaw`` lets them go
    on. If this process is killed, all of them are.
    """
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *unshare, *["--net"] * own_network, "--", *command],
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        # What a terminal sends to all that is in the foreground goes to this process alone.
        start_new_session=True,
    )
    try:
        while not requests.count:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(_POLL_S)
        return _end(process, requests, grace_s)
    finally:
        _kill(process, thaw)


def _end(process: subprocess.Popen[bytes], requests: EndRequests, grace_s: float) -> int:
    """Ask again and again: a program that is about to begin does not hear the first time."""
    deadline = time.monotonic() + grace_s
    if grace_s:
        print("ending in good order; a second Ctrl-C ends it at once", flush=True)
    while requests.count < 2 and time.monotonic() < deadline:
        _signal_first(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_POLL_S)
    return -signal.SIGKILL


def _kill(process: subprocess.Popen[bytes], thaw: Callable[[], object]) -> None:
    """Kill the first process: the kernel ends all others before its parent hears of it."""
    while process.poll() is None:
        thaw()
        _signal_first(process, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_S)


def _signal_first(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal the first process in there: unshare itself minds none, it waits for that one."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        for child in children.split():
            os.kill(int(child), number)
