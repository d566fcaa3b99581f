"""Delivery queue of one webhook: order, rate, back-off and digests. Time is an argument.

The journal is the queue, and this is its head: events wait here in the order of the event list, up
to a bound, and what does not fit is read later. An event is not sent before the one before it of
the same subject was accepted or given up. Where more wait than may be sent in a second, they are
folded into one digest, and what comes meanwhile with them.
"""

from dataclasses import dataclass
from enum import Enum, auto

from everstep_controller.webhooks.cloud_events import Collected, News

_S = 1_000_000_000
# Events that wait in memory.
WAITING_MAX = 1000
# A receiver that does not answer is asked again after twice as long each time, up to this. One
# controller sends one request at a time, so that no jitter is needed.
_RETRY_NS, _RETRY_MAX_NS = _S, 300 * _S
# So often an event is sent that the receiver refuses for what is in it.
REFUSALS_MAX = 3


class Outcome(Enum):
    """What came of a request."""

    ACCEPTED = auto()
    # By what is in the event; the receiver works.
    REFUSED = auto()
    # No answer, or one that says that the receiver does not work, or is the wrong one.
    FAILED = auto()


@dataclass(slots=True)
class Waiting:
    """An event that waits, or a notice in its place that it was given up."""

    news: News
    refusals: int = 0
    not_before_ns: int = 0
    # Why it was given up; empty for the event itself.
    given_up: str = ""


@dataclass(slots=True)
class Digest:
    """Events that are sent as one, from a number on."""

    first: int
    found: Collected
    # Up to this number, which does not change any more; 0: it still takes what comes.
    through: int = 0
    refusals: int = 0


class DeliveryQueue:
    """Queue of one webhook, from a place in the event list on; who sends asks it what is next."""

    def __init__(self, cursor: int, max_per_second: int) -> None:
        self._read = cursor
        self._rate = max_per_second
        self._waiting: list[Waiting] = []
        self._digest: Digest | None = None
        # A digest that was begun before a restart ends where it ended then.
        self._digest_until = 0
        self._tokens = float(max_per_second)
        self._counted_ns = 0
        self._not_before_ns = 0
        self._failures = 0
        self.given_up = 0
        self.digested = 0

    @property
    def read_through(self) -> int:
        """Return the newest number that was offered."""
        return self._read

    @property
    def cursor(self) -> int:
        """Return up to where all is accepted or given up, or is nothing for this webhook."""
        if self._digest is not None:
            return self._digest.first - 1
        return self._waiting[0].news.number - 1 if self._waiting else self._read

    @property
    def digest_through(self) -> int:
        """Return where the digest ends that is being sent; 0: there is none."""
        return self._digest.through if self._digest is not None else 0

    @property
    def failures(self) -> int:
        """Return how many requests in a row were not accepted."""
        return self._failures

    @property
    def room(self) -> int:
        """Return how many more events may be offered; a digest that is open takes any number."""
        if self._takes_all:
            return WAITING_MAX
        return max(0, WAITING_MAX - len(self._waiting))

    @property
    def _takes_all(self) -> bool:
        return self._digest is not None and not self._digest.through

    def resume_digest(self, through: int) -> None:
        """Fold what comes up to a number into one digest: that was begun before a restart."""
        self._digest_until = through

    def offer(self, number: int, news: News | None) -> None:
        """Take the next line of the event list; None: it is not for this webhook."""
        if self._digest_until and number > self._digest_until:
            self._end_resumed()
        first = self.cursor + 1
        self._read = number
        if news is not None:
            self._take(news, first)
        if number == self._digest_until:
            self._end_resumed()

    def take_next(self, now_ns: int) -> Waiting | Digest | None:
        """Return what is to be sent now; None where nothing is, or not yet."""
        self._refill(now_ns)
        if self.is_resting(now_ns):
            return None
        if self._tokens < 1:
            if self._digest is None and len(self._waiting) > self._rate:
                self._fold()
            return None
        found = self._digest if self._digest is not None else self._first_free(now_ns)
        if self._takes_all:
            if self._digest_until:
                return None
            self._seal()
        if found is not None:
            self._tokens -= 1
        return found

    def wait_ns(self, now_ns: int) -> int:
        """Return when to ask again, in ns from now, where nothing new comes; 0: at once."""
        self._refill(now_ns)
        ends = [self._not_before_ns]
        if self._tokens < 1:
            ends.append(now_ns + int((1 - self._tokens) * _S / self._rate) + 1)
        if self._digest is None and self._waiting:
            heads: dict[str, int] = {}
            for one in self._waiting:
                heads.setdefault(one.news.line.subject, one.not_before_ns)
            ends.append(min(heads.values()))
        return max(0, max(ends) - now_ns)

    def is_resting(self, now_ns: int) -> bool:
        """Return whether the receiver is left alone for now."""
        return now_ns < self._not_before_ns

    def end_rest(self) -> None:
        """Ask the receiver again at once: it is known to work."""
        self._not_before_ns, self._failures = 0, 0

    def note_failure(self, now_ns: int, wait_s: float = 0.0) -> None:
        """Leave the receiver alone for a while, longer each time; ``wait_s``: as it has asked."""
        self._failures += 1
        doubled_ns = min(_RETRY_NS << min(self._failures - 1, 20), _RETRY_MAX_NS)
        asked_ns = min(int(wait_s * _S), _RETRY_MAX_NS)
        self._not_before_ns = now_ns + max(doubled_ns, asked_ns)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return self._digest is None and not self._waiting

    def settle(
        self, sent: Waiting | Digest, outcome: Outcome, now_ns: int, why: str, wait_s: float = 0.0
    ) -> None:
        """Take what came of a request; ``wait_s``: for how long the receiver wants no other."""
        if outcome is Outcome.ACCEPTED:
            self._failures = 0
            self._drop(sent)
            return
        if outcome is Outcome.REFUSED:
            self._failures += 1
            self._refuse(sent, now_ns, why)
        else:
            self.note_failure(now_ns, wait_s)

    # ---------------------------------------------------------------------------------------------

    def _take(self, news: News, first: int) -> None:
        if self._digest_until and self._digest is None:
            self._digest = Digest(first, Collected(news))
        if self._digest is not None and self._takes_all:
            self._digest.found.add(news)
        else:
            self._waiting.append(Waiting(news))

    def _fold(self) -> None:
        first, waiting = self.cursor + 1, self._waiting
        self._digest, self._waiting = Digest(first, Collected(waiting[0].news)), []
        for one in waiting:
            self._digest.found.add(one.news)

    def _end_resumed(self) -> None:
        self._digest_until = 0
        if self._takes_all:
            self._seal()

    def _seal(self) -> None:
        if self._digest is not None:
            self._digest.through = self._read

    def _refill(self, now_ns: int) -> None:
        passed_ns = max(0, now_ns - self._counted_ns) if self._counted_ns else 0
        self._tokens = min(float(self._rate), self._tokens + passed_ns * self._rate / _S)
        self._counted_ns = now_ns

    def _first_free(self, now_ns: int) -> Waiting | None:
        """Return the first event whose subject has none before it that waits for another try."""
        held: set[str] = set()
        for one in self._waiting:
            subject = one.news.line.subject
            if one.not_before_ns > now_ns:
                held.add(subject)
            elif subject not in held:
                return one
        return None

    def _drop(self, sent: Waiting | Digest) -> None:
        if isinstance(sent, Waiting):
            self._waiting.remove(sent)
        elif self._digest is not None:
            self.digested += self._digest.found.events
            self._digest = None

    def _refuse(self, sent: Waiting | Digest, now_ns: int, why: str) -> None:
        """Try an event again that is refused for itself, and give it up after some times."""
        sent.refusals += 1
        again_ns = now_ns + (_RETRY_NS << sent.refusals)
        if sent.refusals < REFUSALS_MAX:
            if isinstance(sent, Waiting):
                sent.not_before_ns = again_ns
            else:
                self._not_before_ns = again_ns
            return
        if isinstance(sent, Waiting):
            self.given_up += not sent.given_up
            if not sent.given_up:  # a notice takes its place, once
                sent.given_up, sent.refusals, sent.not_before_ns = why, 0, now_ns
                return
        else:
            self.given_up += sent.found.events
        self._drop(sent)
