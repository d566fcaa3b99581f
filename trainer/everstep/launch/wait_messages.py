"""Wait messages of a launcher: that it takes part in the job, and why its ranks do not run."""

from collections.abc import Callable

# The controller answers a Join within milliseconds. Where it is away, the agent alone has joined.
_ANSWER_S = 2.0
# A terminal that somebody comes back to still shows why nothing happens, and is not full of it.
_AGAIN_S = 600.0
_AGAIN_MAX_S = 3600.0


class WaitMessages:
    """Messages of a waiting launcher: that it has joined, and, rarely repeated, why it waits."""

    def __init__(self, say: Callable[[str], None], monotonic: Callable[[], float]) -> None:
        self._say = say
        self._monotonic = monotonic
        self._greeting = ""
        self._greet_at = 0.0
        self._reason = ""
        self._since = 0.0
        self._again_at = 0.0
        self._again_s = _AGAIN_S

    def joined(self, greeting: str) -> None:
        """The agent takes part; the controller, which may refuse, has not spoken yet."""
        self._greeting, self._greet_at = greeting, self._monotonic() + _ANSWER_S

    def heard(self, *, refused: bool = False) -> None:
        """The controller has spoken."""
        greeting, self._greeting = self._greeting, ""
        if greeting and not refused:
            self._say(greeting)

    def waits(self, reason: str) -> None:
        """Say why nothing runs here."""
        self._say(reason)
        if reason != self._reason:
            self._reason, self._since, self._again_s = reason, self._monotonic(), _AGAIN_S
        self._again_at = self._monotonic() + self._again_s

    def end_wait(self) -> None:
        """Nothing is waited for any more."""
        self._reason = ""

    def due_in_s(self) -> float | None:
        """Return after how long to look again; None: nothing is to be said."""
        due = [self._greet_at] if self._greeting else []
        due += [self._again_at] if self._reason else []
        return max(0.0, min(due) - self._monotonic()) if due else None

    def say_due(self) -> None:
        """Say what is due."""
        now = self._monotonic()
        if self._greeting and now >= self._greet_at:
            self.heard()
        if self._reason and now >= self._again_at:
            minutes = round((now - self._since) / 60)
            self._say(f"still waiting, for {minutes} min: {self._reason}")
            self._again_s = min(2 * self._again_s, _AGAIN_MAX_S)
            self._again_at = now + self._again_s
