"""Signals as selector events: the launcher handles them in its own loop."""

import os
import selectors
import signal
from collections.abc import Callable, Iterable

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
