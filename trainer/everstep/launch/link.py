"""Launcher connection to the agent: made again for ever, and never waited for."""

import selectors
from collections.abc import Callable

from everstep_common.frames import Channel
from everstep_common.launcher_messages import TO_LAUNCHER, Identified, Join
from everstep_common.version import TRAINER_PROTOCOL, VERSION

_CONNECT_TIMEOUT_S = 1.0
# Frames to a launcher are small and written whole; one that takes longer is a hung agent's.
_FRAME_TIMEOUT_S = 2.0
_RETRY_MIN_S = 0.05
_RETRY_MAX_S = 1.0


def not_understood(path: str) -> str:
    """Say that the agent hangs up without a word."""
    return (
        f"the agent at {path} does not understand this launcher (everstep {VERSION}, protocol"
        f" {TRAINER_PROTOCOL}); install the same version of everstep for both"
    )


class LaunchLink:
    """Connection to the agent: joins, hands on its messages, and joins again after a loss."""

    def __init__(
        self,
        path: str,
        selector: selectors.BaseSelector,
        on_message: Callable[[object], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._path = path
        self._selector = selector
        self._on_message = on_message
        self._monotonic = monotonic
        self._channel: Channel | None = None
        self._answered = False
        # Which job of its name this one is, once the agent has said so.
        self.job_id = ""
        # Connections in a row that the agent ended without a word.
        self.unanswered = 0
        # Why the newest attempt to connect failed.
        self.refusal = OSError("it hangs up")
        self._retry_s = _RETRY_MIN_S
        self._retry_at = 0.0

    @property
    def connected(self) -> bool:
        """Whether the connection stands, as far as is known."""
        return self._channel is not None

    @property
    def descriptor(self) -> int:
        """Of the connection; -1: there is none."""
        return -1 if self._channel is None else self._channel.fileno()

    def connect(self, join: Join) -> None:
        """Connect and ask to join. Raises OSError."""
        channel = Channel.connect(self._path, TO_LAUNCHER, _CONNECT_TIMEOUT_S)
        try:
            channel.send(join)
        except OSError:
            channel.close()
            raise
        self._channel, self._answered = channel, False
        self._selector.register(channel, selectors.EVENT_READ, self._read)

    def due_in_s(self) -> float | None:
        """Return how long to wait before the next attempt to connect; None when connected."""
        return None if self.connected else max(0.0, self._retry_at - self._monotonic())

    def retry(self, join: Join) -> None:
        """Try once to connect again, if it is time."""
        if self.connected or self._monotonic() < self._retry_at:
            return
        try:
            self.connect(join)
        except OSError as error:
            self.refusal = error
            self._retry_s = min(2 * self._retry_s, _RETRY_MAX_S)
            self._retry_at = self._monotonic() + self._retry_s

    def settled(self) -> None:
        """The agent took the Join: the next loss begins with short pauses again."""
        self.unanswered = 0
        self._retry_s = _RETRY_MIN_S

    def send(self, message: object) -> None:
        """Send; a loss is not an error here, because the state is told again after a Join."""
        if self._channel is None:
            return
        try:
            self._channel.send(message)
        except OSError:
            self.drop()

    def drop(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            self.unanswered += not self._answered
            self._selector.unregister(self._channel)
            self._channel.close()
            self._channel = None
            self._retry_at = self._monotonic() + self._retry_s

    def _read(self) -> None:
        if self._channel is None:
            return
        try:
            message, _ = self._channel.receive(_FRAME_TIMEOUT_S)
        except OSError:
            self.drop()
            return
        self._answered = True
        if isinstance(message, Identified):
            self.job_id = message.job_id
        else:
            self._on_message(message)
