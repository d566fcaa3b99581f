"""CloudEvents of webhooks: what a line of the event list says, as CloudEvents 1.0 has it.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md, "Context attributes". The event
of a line is always the same, byte by byte, so that a receiver knows one that comes twice by its id.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase

from everstep_common.judging.findings import Severity
from everstep_common.printable import printable
from everstep_controller.core.actions import About, Topic
from everstep_controller.core.model.state import CONTROLLER
from everstep_controller.journal.codec import decode_about
from everstep_controller.journal.port import Announcement
from everstep_controller.webhooks.config import EventKind, WebhookConfig

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
_TYPE = "io.everstep"
_S = 1_000_000_000
_CLEARED = "Cleared"
# Of a digest: so many events are listed, and so many names and kinds counted one by one.
LISTED_MAX = 50
_COUNTED_MAX = 50
# Every receiver takes 64 KiB (CloudEvents): of that for the list; and of a sentence in it.
_LISTED_BYTES_MAX, _SENTENCE_MAX = 48_000, 400
_KEPT_MAX = 500
_SUBJECT_MAX = 256
_SEVERITIES = tuple(Severity)
# The gravest first.
_RANKS = {Topic.FINDING_RAISED: 1, Topic.INCIDENT_BEGUN: 1, Topic.INCIDENT_OVER: 3}
_RANK_ELSE, _RANK_FATAL, _RANK_DEGRADED, _RANK_INFO = 4, 0, 2, 5


@dataclass(frozen=True, slots=True)
class News:
    """A line of the event list, and what it is about."""

    line: Announcement
    about: About

    @property
    def number(self) -> int:
        """Return its place in the event list."""
        return self.line.id

    @property
    def rank(self) -> int:
        """Return how grave it is: 0 is the gravest."""
        if self.about.topic is Topic.FINDING_RAISED:
            fatal = self.about.severity == Severity.FATAL.value
            info = self.about.severity == Severity.INFO.value
            return _RANK_FATAL if fatal else _RANK_INFO if info else _RANK_DEGRADED
        return _RANKS.get(self.about.topic, _RANK_ELSE)

    @property
    def evidence_age_s(self) -> float:
        """Return how old its evidence was when the line was written, in seconds."""
        seen_ns = self.about.evidence_ns or self.line.at_ns
        return round(max(0, self.line.at_ns - seen_ns) / _S, 3)


def news_of(line: Announcement, conditions: Collection[str]) -> News:
    """Return a line with what it is about.

    ``conditions``: those of the controller, which tells of some in a line without more.
    """
    about = decode_about(line.about)
    if about is not None:
        return News(line, about)
    cleared = line.reason.removesuffix(_CLEARED)
    if line.reason in conditions:
        severity = Severity.DEGRADED.value
        about = About(topic=Topic.FINDING_RAISED, condition=line.reason, severity=severity)
    elif cleared != line.reason and cleared in conditions:
        severity = Severity.DEGRADED.value
        about = About(topic=Topic.FINDING_CLEARED, condition=cleared, severity=severity)
    return News(line, about or About())


def is_wanted(news: News, config: WebhookConfig) -> bool:
    """Return whether a webhook gets an event."""
    kind = EventKind(news.about.topic.value.partition(".")[0])
    if kind not in config.kinds or not _matches(news.line.subject, config.subjects):
        return False
    if kind is not EventKind.FINDING:
        return True
    severity = news.about.severity or Severity.FATAL.value
    grave = [one.value for one in _SEVERITIES[_SEVERITIES.index(config.severity) :]]
    return severity in grave and (
        not config.conditions or news.about.condition in config.conditions
    )


@dataclass(frozen=True, slots=True)
class EventWriter:
    """Writer of the events of one cluster."""

    cluster: str

    def event(self, news: News) -> tuple[str, bytes]:
        """Return id and body of an event of its own."""
        return self._whole(
            event_id=f"{self.cluster}/{news.line.id}/{news.line.at_ns}",
            topic=news.about.topic.value,
            subject=_subject(news),
            at_ns=news.line.at_ns,
            number=news.line.id,
            content=_content(news),
        )

    def digest(self, first: int, found: "Collected") -> tuple[str, bytes]:
        """Return id and body of one event for those from a number on that were collected."""
        last, listed = found.last, _listed(found.gravest)
        begun = _time(found.first_ns)
        content = {
            "sentence": f"{found.events} events came faster than they may be sent one by one: "
            f"{len(listed)} are listed here, and all by the command",
            "events": found.events,
            "not_listed": found.events - len(listed),
            "topics": dict(found.topics.most_common(_COUNTED_MAX)),
            "reasons": dict(found.reasons.most_common(_COUNTED_MAX)),
            "from": begun,
            "to": _time(last.at_ns),
            "listed": listed,
            "command": f"everstep events --since {begun} --limit 10000",
        }
        return self._whole(
            event_id=f"{self.cluster}/digest/{first}-{last.id}/{last.at_ns}",
            topic="digest",
            subject="digest",
            at_ns=last.at_ns,
            number=last.id,
            content=content,
        )

    def notice(self, number: int, at_ns: int, name: str, sentence: str) -> tuple[str, bytes]:
        """Return id and body of an event that says what is not sent, and why."""
        return self._whole(
            event_id=f"{self.cluster}/{name}/{number}/{at_ns}",
            topic="not-sent",
            subject="webhook",
            at_ns=at_ns,
            number=number,
            content={"sentence": sentence, "command": "everstep webhooks"},
        )

    def test(self, name: str, at_ns: int) -> tuple[str, bytes]:
        """Return id and body of an event that an operator has asked for."""
        return self._whole(
            event_id=f"{self.cluster}/test/{at_ns}",
            topic="test",
            subject="webhook",
            at_ns=at_ns,
            number=0,
            content={"sentence": f"this is a test of the webhook {name}", "command": ""},
        )

    def _whole(
        self, *, event_id: str, topic: str, subject: str, at_ns: int, number: int, content: object
    ) -> tuple[str, bytes]:
        event = {
            "specversion": "1.0",
            "id": event_id,
            "source": f"/everstep/{self.cluster}",
            "type": f"{_TYPE}.{topic}",
            "subject": subject,
            "time": _time(at_ns),
            "datacontenttype": "application/json",
            # An extension of CloudEvents: the place in the event list, to be compared as text.
            "sequence": f"{number:020d}",
            "data": content,
        }
        return event_id, json.dumps(event).encode()


class Collected:
    """Events for one digest: all are counted, and the gravest are kept."""

    def __init__(self, first: News) -> None:
        self.events = 0
        self.first_ns = first.line.at_ns
        self.last = first.line
        self.topics: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self._gravest: list[News] = []

    @property
    def gravest(self) -> list[News]:
        """Return those that are listed."""
        return sorted(self._gravest, key=lambda one: (one.rank, one.number))[:LISTED_MAX]

    def add(self, news: News) -> None:
        """Take one more, which is the newest."""
        self.events += 1
        self.last = news.line
        self.topics[news.about.topic.value] += 1
        self.reasons[news.line.reason] += 1
        self._gravest.append(news)
        if len(self._gravest) > _KEPT_MAX:
            self._gravest = self.gravest


# -------------------------------------------------------------------------------------------------


def _content(news: News) -> dict[str, object]:
    about, line = news.about, news.line
    found = {
        "component": about.component,
        "condition": about.condition,
        "severity": about.severity,
        "mode": about.mode,
        "evidence": printable(about.evidence),
        "suggested_action": about.suggested_action,
    }
    return {
        "sentence": printable(line.message),
        "reason": line.reason,
        **{key: value for key, value in found.items() if value},
        **({"injected": True} if about.injected else {}),
        "evidence_age_s": news.evidence_age_s,
        "evidence_time": _time(about.evidence_ns or line.at_ns),
        "command": _command(line.subject),
    }


def _listed(gravest: Iterable[News]) -> list[dict[str, object]]:
    """Return what a digest lists, in the order of the event list: the gravest that fit."""
    found: list[tuple[int, dict[str, object]]] = []
    left = _LISTED_BYTES_MAX
    for news in gravest:
        content = {**_content(news), "subject": _subject(news)}
        content["sentence"] = printable(news.line.message)[:_SENTENCE_MAX]
        for key in ("evidence", "evidence_time"):
            content.pop(key, None)
        left -= len(json.dumps(content))
        if left < 0:
            break
        found.append((news.number, content))
    return [content for _, content in sorted(found, key=lambda one: one[0])]


def _subject(news: News) -> str:
    return printable(news.line.subject)[:_SUBJECT_MAX] or CONTROLLER


def _command(subject: str) -> str:
    if subject in ("", CONTROLLER):
        return "everstep findings"
    return f"everstep why {printable(subject)}"


def _time(at_ns: int) -> str:
    """Return a time as RFC 3339 has it, in UTC.

    >>> _time(1_700_000_000_123_456_789)
    '2023-11-14T22:13:20.123456Z'
    """
    second, rest = divmod(at_ns, _S)
    whole = datetime.fromtimestamp(second, UTC).replace(microsecond=rest // 1000, tzinfo=None)
    return whole.isoformat(timespec="microseconds") + "Z"


def _matches(subject: str, patterns: Iterable[str]) -> bool:
    chosen = list(patterns)
    return not chosen or any(fnmatchcase(subject, one) for one in chosen)
