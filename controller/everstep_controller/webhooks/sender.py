"""Sender of one webhook: a thread that reads the event list and sends what is next.

It owns its reader of the journal, its queue and its cursor file, and shares with the event loop
only a status that is replaced whole. A receiver that is slow or away holds up nothing but its own
events.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field, replace

from everstep_common.credential_file import CredentialError
from everstep_common.printable import printable
from everstep_controller.journal.port import (
    Announcement,
    JournalAccessError,
    JournalReader,
)
from everstep_controller.webhooks.cloud_events import (
    CONTENT_TYPE,
    EventWriter,
    News,
    is_wanted,
    news_of,
)
from everstep_controller.webhooks.config import WebhookConfig
from everstep_controller.webhooks.cursors import Cursor, CursorError, CursorFile, JournalCursor
from everstep_controller.webhooks.egress import EgressError, target_of
from everstep_controller.webhooks.http_post import Answer, Poster, PostError
from everstep_controller.webhooks.queue import (
    REFUSALS_MAX,
    DeliveryQueue,
    Digest,
    Outcome,
    Waiting,
)
from everstep_controller.webhooks.signature import SigningKeyError, signed_headers, signing_key

logger = logging.getLogger(__name__)

_S = 1_000_000_000
# Lines that are read at once, and how often the list is read while nothing is announced: a line
# is announced before the journal has it.
_PAGE = 500
_POLL_S, _IDLE_S = 0.2, 5.0
# The cursor is written down so often at most; what was sent since is sent again after a crash.
_KEEP_NS = _S
# So many requests in a row without success, and for so long, are a finding.
_FAILURES_MAX, _FAILING_NS = 5, 30 * _S
# Answers by which a receiver says that the event itself is wrong (RFC 9110, section 15.5).
_ABOUT_EVENT = frozenset({400, 406, 409, 411, 413, 415, 422})


@dataclass(frozen=True, slots=True)
class WebhookStatus:
    """Status of a webhook, as people see it; counts are of this start of the controller."""

    name: str
    host: str = ""
    cursor: int = 0
    newest: int = 0
    sent: int = 0
    # Requests that were not accepted; events that were given up; events that went in digests.
    failed: int = 0
    given_up: int = 0
    digested: int = 0
    # The newest answer, or why there was none, and when.
    answer: str = ""
    answer_ns: int = 0
    # Why it fails, and since when, where people should look; empty while it works.
    trouble: str = ""
    trouble_ns: int = 0

    @property
    def lag(self) -> int:
        """Return how many lines of the event list are behind."""
        return max(0, self.newest - self.cursor)


@dataclass(frozen=True, slots=True)
class TestedAnswer:
    """What came of a test that an operator has asked for."""

    accepted: bool
    sentence: str


@dataclass(frozen=True, slots=True)
class SenderParts:
    """Parts of a sender."""

    config: WebhookConfig
    # Opens a reader of the journal, in the thread that uses it.
    open_reader: Callable[[], JournalReader]
    cursor: CursorFile | JournalCursor
    cluster: str
    # The conditions of the controller, and its time.
    conditions: Collection[str]
    now_ns: Callable[[], int]
    poster: Poster
    # The wall clock, for the time of a signature.
    wall_s: Callable[[], float] = time.time


@dataclass(slots=True)
class _Trouble:
    """Failures in a row, from the first."""

    since_ns: int = 0
    count: int = 0
    why: str = ""


@dataclass(slots=True)
class _Mailbox:
    """What the event loop has left for the thread."""

    announced: int = 0
    tests: "list[Future[TestedAnswer]]" = field(default_factory=list)
    stopping: bool = False


class WebhookSender:
    """Thread of one webhook."""

    def __init__(self, name: str, parts: SenderParts) -> None:
        self.status = WebhookStatus(name)
        self._name = name
        self._parts = parts
        self._writer = EventWriter(parts.cluster)
        self._changed = threading.Condition()
        self._mailbox = _Mailbox()
        self._thread = threading.Thread(target=self._run, name=f"webhook-{name}", daemon=True)
        # Used by the thread alone:
        self._trouble = _Trouble()
        self._notices: list[tuple[str, bytes]] = []
        self._kept: Cursor | None = None
        self._kept_ns = 0
        self._is_journal_away = False

    # --- from the event loop ---------------------------------------------------------------------

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def note_announced(self, number: int) -> None:
        """Learn that a line of the event list is on its way to the journal."""
        with self._changed:
            self._mailbox.announced = number
            self._changed.notify()

    def test(self) -> "Future[TestedAnswer]":
        """Have a test event sent now, past the queue; the result is the answer in words."""
        asked: Future[TestedAnswer] = Future()
        with self._changed:
            self._mailbox.tests.append(asked)
            self._changed.notify()
        return asked

    def stop(self, timeout_s: float) -> None:
        """End it; a request that takes longer than this ends with the process."""
        with self._changed:
            self._mailbox.stopping = True
            self._changed.notify()
        self._thread.join(timeout_s)

    @property
    def has_ended(self) -> bool:
        """Whether its thread ended though nobody has stopped it."""
        started = self._thread.ident is not None
        return started and not self._thread.is_alive() and not self._mailbox.stopping

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with closing(self._parts.open_reader()) as reader:
                queue = self._begin_when_readable(reader)
                while queue is not None and not self._mailbox.stopping:
                    self._wait(self._step(reader, queue))
                if queue is not None:
                    self._keep_cursor(queue, at_once=True)
        except Exception as error:  # Whoever watches the status tells people: nobody else would.
            logger.exception("webhook %s ended", self._name)
            why = f"its thread ended, {error!r:.200}; a restart of the controller begins it anew"
            self._tell(trouble=why, trouble_ns=self._parts.now_ns())

    def _begin_when_readable(self, reader: JournalReader) -> DeliveryQueue | None:
        """Return the queue; None where it is stopped before the journal can be read."""
        while not self._mailbox.stopping:
            try:
                return self._begin(reader)
            except JournalAccessError as error:
                logger.info("webhook %s waits for the journal: %s", self._name, error)
                self._wait(_POLL_S)
        return None

    def _begin(self, reader: JournalReader) -> DeliveryQueue:
        """Return the queue from where the webhook had come; a new one begins with what comes."""
        last = reader.last_announcement()
        try:
            kept = self._kept_cursor(last)
        except CursorError as error:
            kept = None
            what = f"{error}: what happened before was perhaps not sent"
            self._note_unsent("lost", reader.announcements_after(last - 1, 1), what)
        queue = DeliveryQueue(last if kept is None else kept.number, self._rate)
        if kept is not None and kept.number < kept.digest_through <= last:
            queue.resume_digest(kept.digest_through)
        self._keep_cursor(queue, at_once=True)
        return queue

    @property
    def _rate(self) -> int:
        return self._parts.config.max_per_second

    def _kept_cursor(self, last: int) -> Cursor | None:
        """Return where it had come; None for one that is new. Raises CursorError."""
        kept = self._parts.cursor.read()
        if kept is not None and kept.cluster != self._parts.cluster:
            raise CursorError("its cursor is of another cluster")
        if kept is not None and kept.number > last:
            raise CursorError(f"the journal is older than its cursor, which is {kept.number}")
        return kept

    def _note_unsent(self, name: str, lines: Sequence[Announcement], sentence: str) -> None:
        """Have the receiver told what it does not get, by the line that it is about."""
        logger.warning("webhook %s: %s", self._name, sentence)
        number, at_ns = (lines[0].id, lines[0].at_ns) if lines else (0, self._parts.now_ns())
        self._notices.append(self._writer.notice(number, at_ns, name, sentence))

    def _step(self, reader: JournalReader, queue: DeliveryQueue) -> float:
        """Read what has come, send what is next; return how long to wait, in seconds."""
        self._send_tests(queue)
        self._read(reader, queue)
        self._send_notices(queue)
        now_ns = self._parts.now_ns()
        found = queue.take_next(now_ns)
        if found is not None:
            if isinstance(found, Digest):
                self._keep_cursor(queue, at_once=True)  # after a crash it ends where it ends now
            self._send(queue, found)
        self._keep_cursor(queue)
        self._publish(queue)
        if found is not None:
            return 0.0
        if self._is_journal_away:
            return _POLL_S
        if queue.is_empty and queue.read_through >= self._mailbox.announced:
            return _IDLE_S if self._cursor(queue) == self._kept else _KEEP_NS / _S
        return min(max(queue.wait_ns(now_ns) / _S, 0.001), _POLL_S)

    def _wait(self, wait_s: float) -> None:
        if wait_s <= 0:
            return
        announced = self._mailbox.announced
        with self._changed:
            box = self._mailbox
            self._changed.wait_for(
                lambda: box.stopping or bool(box.tests) or box.announced != announced, wait_s
            )

    def _read(self, reader: JournalReader, queue: DeliveryQueue) -> None:
        while queue.room:
            limit = min(queue.room, _PAGE)
            try:
                lines = reader.announcements_after(queue.read_through, limit)
            except JournalAccessError as error:
                logger.info("webhook %s waits for the journal: %s", self._name, error)
                self._is_journal_away = True
                return
            self._is_journal_away = False
            if lines and (gone := lines[0].id - queue.read_through - 1) > 0:
                why = f"{gone} lines of the event list were deleted before they were sent"
                self._note_unsent("gap", lines, f"{why}: announcements_retention_days")
            for line in lines:
                news = news_of(line, self._parts.conditions)
                queue.offer(line.id, news if is_wanted(news, self._parts.config) else None)
            if len(lines) < limit:
                return

    def _send(self, queue: DeliveryQueue, found: Waiting | Digest) -> None:
        event_id, body = self._event(found)
        outcome, why, wait_s = self._post(event_id, body)
        now_ns = self._parts.now_ns()
        queue.settle(found, outcome, now_ns, why, wait_s)
        if outcome is Outcome.ACCEPTED:
            self._tell(sent=self.status.sent + 1)
        else:
            self._tell(failed=self.status.failed + 1)

    def _send_notices(self, queue: DeliveryQueue) -> None:
        """Send what was noted, past the queue; it is dropped where the receiver refuses it."""
        while self._notices and not queue.is_resting(self._parts.now_ns()):
            outcome, _, wait_s = self._post(*self._notices[0])
            if outcome is Outcome.FAILED:
                queue.note_failure(self._parts.now_ns(), wait_s)
            else:
                del self._notices[0]

    def _event(self, found: Waiting | Digest) -> tuple[str, bytes]:
        if isinstance(found, Digest):
            return self._writer.digest(found.first, found.found)
        if not found.given_up:
            return self._writer.event(found.news)
        return self._refused(found.news, found.given_up)

    def _refused(self, news: News, why: str) -> tuple[str, bytes]:
        sentence = (
            f"an event about {printable(news.line.subject)} ({news.line.reason}) was refused "
            f"{REFUSALS_MAX} times and is given up: {why}"
        )
        return self._writer.notice(news.number, news.line.at_ns, "given-up", sentence)

    def _post(self, event_id: str, body: bytes) -> tuple[Outcome, str, float]:
        """Send an event; return what came of it, why, and how long the receiver wants rest."""
        config, at_ns = self._parts.config, self._parts.now_ns()
        try:
            target = target_of(config.url_file.read(), config.hosts)
            key = signing_key(config.key_file.read())
            headers = {"Content-Type": CONTENT_TYPE, "User-Agent": "everstep-controller"}
            headers |= signed_headers(key, event_id, int(self._parts.wall_s()), body)
            self._tell(host=target.host)
            answer = self._parts.poster.post(target, headers, body, config.timeout_s)
        except (CredentialError, EgressError, PostError, SigningKeyError) as error:
            self._note_answer(Outcome.FAILED, str(error), at_ns)
            return Outcome.FAILED, str(error), 0.0
        outcome = outcome_of(answer)
        self._note_answer(outcome, answer.sentence, at_ns)
        return outcome, answer.sentence, answer.retry_after_s

    def _note_answer(self, outcome: Outcome, why: str, at_ns: int) -> None:
        """Remember an answer; failures that last are for people, and one success ends them."""
        known = self._trouble
        if outcome is Outcome.ACCEPTED:
            self._trouble = _Trouble()
        else:
            self._trouble = _Trouble(known.since_ns or at_ns, known.count + 1, why)
        now = self._trouble
        lasts = now.count >= _FAILURES_MAX and at_ns - now.since_ns >= _FAILING_NS
        self._tell(
            answer=why,
            answer_ns=at_ns,
            trouble=why if lasts else "",
            trouble_ns=now.since_ns if lasts else 0,
        )

    def _send_tests(self, queue: DeliveryQueue) -> None:
        with self._changed:
            tests, self._mailbox.tests = self._mailbox.tests, []
        for asked in tests:
            outcome, why, _ = self._post(*self._writer.test(self._name, self._parts.now_ns()))
            if outcome is Outcome.ACCEPTED:
                queue.end_rest()
            asked.set_result(TestedAnswer(outcome is Outcome.ACCEPTED, why))

    def _cursor(self, queue: DeliveryQueue) -> Cursor:
        return Cursor(self._parts.cluster, queue.cursor, queue.digest_through)

    def _keep_cursor(self, queue: DeliveryQueue, *, at_once: bool = False) -> None:
        """Write down how far it is, once a second at most."""
        cursor, now_ns = self._cursor(queue), self._parts.now_ns()
        if self._notices:
            return  # until they are sent, the next start has to find the same
        if cursor == self._kept or not (at_once or now_ns - self._kept_ns >= _KEEP_NS):
            return
        try:
            self._parts.cursor.write(cursor)
        except OSError as error:
            logger.warning(
                "webhook %s: %s cannot be written: %s; after a restart some events come twice",
                self._name,
                self._parts.cursor,
                error.strerror,
            )
        self._kept, self._kept_ns = cursor, now_ns

    def _publish(self, queue: DeliveryQueue) -> None:
        self._tell(
            cursor=queue.cursor,
            newest=max(queue.read_through, self._mailbox.announced),
            given_up=queue.given_up,
            digested=queue.digested,
        )

    def _tell(self, **changes: object) -> None:
        self.status = replace(self.status, **changes)  # type: ignore[arg-type]


def outcome_of(answer: Answer) -> Outcome:
    """Return what an answer means for the event."""
    if 200 <= answer.status < 300:
        return Outcome.ACCEPTED
    return Outcome.REFUSED if answer.status in _ABOUT_EVENT else Outcome.FAILED
