"""Access to the page: a token that opens it once, and the sessions that came of one. Pure."""

import hmac
from collections.abc import Callable
from dataclasses import dataclass

# A working day and its evening: then somebody opens the page anew.
SESSION_S = 12 * 3600.0
# An address that was copied and never opened is nobody's key for long.
TOKEN_S = 3600.0
# More people than look at one fleet; the oldest session ends for a newer one.
SESSIONS_MAX = 200


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    ends_s: float


class Access:
    """Tokens and sessions, in memory only: a page that starts anew is opened anew."""

    def __init__(self, now_s: Callable[[], float], random: Callable[[], str]) -> None:
        self._now_s, self._random = now_s, random
        self._token: _Token | None = None
        # Until when each session is good, the oldest first.
        self._sessions: dict[str, float] = {}

    def new_token(self) -> str:
        """Return a token that opens one session; the one before it opens none any more."""
        self._token = _Token(self._random(), self._now_s() + TOKEN_S)
        return self._token.text

    def open_session(self, token: str) -> str | None:
        """Return the session that a token opens; None for one that is wrong, used or old."""
        known, now_s = self._token, self._now_s()
        if known is None or now_s > known.ends_s or not _equal(known.text, token):
            return None
        self._token = None
        self._drop_old(now_s)
        session = self._random()
        self._sessions[session] = now_s + SESSION_S
        return session

    def has_session(self, session: str) -> bool:
        """Return whether a session is open."""
        now_s = self._now_s()
        return any(
            _equal(known, session) and now_s <= ends_s for known, ends_s in self._sessions.items()
        )

    def _drop_old(self, now_s: float) -> None:
        kept = {one: ends_s for one, ends_s in self._sessions.items() if now_s <= ends_s}
        while len(kept) >= SESSIONS_MAX:
            kept.pop(next(iter(kept)))
        self._sessions = kept


def _equal(known: str, told: str) -> bool:
    return hmac.compare_digest(known.encode(), told.encode("utf-8", "replace"))
