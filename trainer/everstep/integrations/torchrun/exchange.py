"""Exchange between torchrun's thread and the agent's listener: requests and answers, one lock."""

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from everstep_common.launcher_messages import Start

# A controller that lives decides within this time whether a failure was the job's last.
_VERDICT_S = 10.0
_LAST_WORDS_S = 2.0


class JobOverError(Exception):
    """The job has ended, or the agent does not take this node; one sentence why."""

    def __init__(self, reason: str, *, succeeded: bool) -> None:
        super().__init__(reason)
        self.succeeded = succeeded


@dataclass(slots=True)
class Asked:
    """Requests of torchrun's thread to the listening thread."""

    # No rank of a generation is left, and it waits.
    idle: bool = False
    # It has been told to end the ranks, and does so now.
    ends_ranks: bool = False
    # All ranks of this node have ended well.
    succeeded: bool = False
    leaving: str = ""


@dataclass(slots=True)
class Answered:
    """Answers of the listening thread to torchrun's thread."""

    # The generation to start.
    start: Start | None = None
    # The running one must end.
    restart: bool = False
    over: JobOverError | None = None
    left: bool = False
    deaf: bool = False


class RendezvousExchange:
    """Calls of torchrun's thread: each makes a request, and waits where there is an answer."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.asked = Asked()
        self.answered = Answered()
        self._waker, self.wakened = socket.socketpair()
        self.wakened.setblocking(False)

    def next_start(self) -> Start:
        """Tell that no rank runs here, and wait for the next generation. Raises JobOverError."""
        with self.changed:
            answered = self.answered
            self.asked.idle = True
            self._wait(lambda: answered.start is not None or answered.over is not None)
            start, answered.start = answered.start, None
            if start is None:
                raise self._over()
            return start

    def restart_wanted(self, wait_s: float = 0.0) -> bool:
        """Return whether the ranks must end now; torchrun is expected to end them then."""
        with self.changed:
            if wait_s:
                self._wait(lambda: self.answered.restart, wait_s)
            if self.answered.restart and not self.asked.ends_ranks:
                self.asked.ends_ranks = True
                self._wake()
            return self.answered.restart

    def succeed(self) -> None:
        """All ranks of this node are done: wait for the job's end. Raises JobOverError."""
        with self.changed:
            answered = self.answered
            self.asked.succeeded = self.asked.idle = True
            self._wait(lambda: answered.over is not None or answered.restart)
            if answered.over is None and answered.restart:
                reason = "torchrun cannot start ranks of a node again that had ended well"
                self._leave(reason)
                raise JobOverError(reason, succeeded=False)
            if answered.over is None or not answered.over.succeeded:
                raise self._over()

    def give_up(self, reason: str) -> str:
        """Torchrun ends with an error: return what the controller makes of it, or leave."""
        with self.changed:
            self.asked.idle = True
            self._wait(lambda: self.answered.over is not None, _VERDICT_S)
            self._leave(reason)
            return str(self.answered.over or reason)

    def leave(self, reason: str) -> None:
        """End the membership; nothing where it has ended already."""
        with self.changed:
            self._leave(reason)

    def _leave(self, reason: str) -> None:
        if self.answered.over is None and not self.answered.left:
            self.asked.leaving, self.asked.idle, self.asked.ends_ranks = reason, True, True
            self._wait(lambda: self.answered.left, _LAST_WORDS_S)

    def _wait(self, so: Callable[[], bool], timeout_s: float | None = None) -> None:
        self._wake()
        self.changed.wait_for(lambda: so() or self.answered.deaf, timeout_s)

    def _over(self) -> JobOverError:
        lost = "the rendezvous has ended by a fault of its own, which is told above"
        return self.answered.over or JobOverError(lost, succeeded=False)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waker.send(b"!")
