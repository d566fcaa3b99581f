"""Stream certificates: ends agents' streams whose certificate has ended, or whose authority has.

TLS looks at a certificate once, when a channel opens. The agent opens another one at once, with
what its files have by then; who keeps the channel gets no other stream on it. Those of a fleet that
end together are spread, for each costs a handshake.
"""

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path
from weakref import WeakSet

from everstep_controller.api.fleet.sessions import Session, Sessions
from everstep_proto.shown_certificates import ShownCertificates
from everstep_proto.tls import Identity

# A stream outlives its certificate by so long at most, and by its place among others.
LOOK_S = 20.0
# Two milliseconds for a handshake with EC keys, as much for a Hello, and room for other work.
_EACH_S = 0.01
# Number of signatures that are verified before others have their turn.
_IN_A_ROW = 20


class StreamCertificates:
    """Looks at the certificates of open streams, and ends those that count no more."""

    def __init__(
        self,
        sessions: Sessions,
        authority: Path,
        now_s: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        self._sessions, self._judge = sessions, ShownCertificates(authority)
        self._now_s, self._rng = now_s, rng or random.Random()
        # Those that are about to end.
        self._found: WeakSet[Session] = WeakSet()
        # Before that TLS has looked at each channel by the authorities that there are.
        self._replaced = False

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        self._judge.changed()
        while True:
            await asyncio.sleep(LOOK_S)
            await self.end_stale_streams()

    def trouble(self, identity: Identity) -> str:
        """Return why no stream is opened on a channel; "" where its certificate still counts."""
        if identity.until_s < self._now_s():
            return "the certificate has ended"
        return self._judge.trouble(identity.shown()) if self._replaced else ""

    async def end_stale_streams(self) -> None:
        """End, one after the other, the streams whose certificates count no more."""
        now_s, found = self._now_s(), dict[Session, str]()
        open_ones = [one for one in self._sessions if one not in self._found]
        for session in open_ones:
            if session.until_s < now_s:
                found[session] = "its certificate has ended"
        if self._judge.changed():
            self._replaced = True
            for place, session in enumerate(open_ones):
                if not place % _IN_A_ROW:
                    await asyncio.sleep(0)
                if not session.ending and (why := self._judge.trouble(session.shown())):
                    found.setdefault(session, why)
        loop = asyncio.get_running_loop()
        for session, why in found.items():
            self._found.add(session)
            sentence = f"{why}: another stream takes the one that the agent's files have now"
            loop.call_later(self._rng.uniform(0, _EACH_S * len(found)), session.renew, sentence)
