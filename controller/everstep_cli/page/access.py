"""Access to the page: tokens that open it once, and the sessions that came of one. Pure."""

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from everstep_proto.tls import Role

# A working day and its evening: then somebody opens the page anew.
SESSION_S = 12 * 3600.0
# An address that was copied and never opened is nobody's key for long.
TOKEN_S = 3600.0
# More people than look at one fleet; the oldest session ends for a newer one.
SESSIONS_MAX = 200


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who looks at the page."""

    # Login; "" for one whom an address has let in.
    name: str
    role: Role
    # Whose connections and requests are counted together.
    key: str

    @property
    def told(self) -> str:
        """Return who that is, in words."""
        return f"{self.name or 'somebody with an address of this page'}, {self.role.value}"


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    ends_s: float


@dataclass(frozen=True, slots=True)
class _Session:
    person: Person
    ends_s: float


class Access:
    """Tokens and sessions, in memory only: a page that starts anew is opened anew."""

    def __init__(self, now_s: Callable[[], float], random: Callable[[], str]) -> None:
        self._now_s, self._random = now_s, random
        self._tokens: dict[Role, _Token] = {}
        # By their digests, the oldest first.
        self._sessions: dict[bytes, _Session] = {}

    def new_token(self, role: Role = Role.VIEWER) -> str:
        """Return a token that opens one session; the one before it opens none any more."""
        token = _Token(self._random(), self._now_s() + TOKEN_S)
        self._tokens[role] = token
        return token.text

    def open_session(self, token: str) -> str | None:
        """Return the session that a token opens; None for one that is wrong, used or old."""
        now_s = self._now_s()
        role = next((r for r, one in self._tokens.items() if _equal(one.text, token)), None)
        if role is None or now_s > self._tokens.pop(role).ends_s:
            return None
        self._drop_old(now_s)
        session = self._random()
        key = _digest(session)
        person = Person("", role, f"session {key.hex()[:16]}")
        self._sessions[key] = _Session(person, now_s + SESSION_S)
        return session

    def person(self, session: str) -> Person | None:
        """Return who has a session; None where it is not open."""
        found = self._sessions.get(_digest(session))
        return None if found is None or self._now_s() > found.ends_s else found.person

    def has_session(self, session: str) -> bool:
        """Return whether a session is open."""
        return self.person(session) is not None

    def left_s(self, session: str) -> float:
        """Return how long a session lasts still."""
        found = self._sessions.get(_digest(session))
        return 0.0 if found is None else max(0.0, found.ends_s - self._now_s())

    def end_session(self, session: str) -> None:
        """End a session, if it is one."""
        self._sessions.pop(_digest(session), None)

    def _drop_old(self, now_s: float) -> None:
        kept = {key: one for key, one in self._sessions.items() if now_s <= one.ends_s}
        while len(kept) >= SESSIONS_MAX:
            kept.pop(next(iter(kept)))
        self._sessions = kept


def _digest(session: str) -> bytes:
    return sha256(session.encode("utf-8", "replace")).digest()


def _equal(known: str, told: str) -> bool:
    return hmac.compare_digest(known.encode(), told.encode("utf-8", "replace"))
