"""Findings of this node: raised and cleared by judgements, sent on, and kept over a restart."""

import json
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_common.clock import Stamp, StampClock
from everstep_common.codec import CodecError, from_json, json_text
from everstep_common.judging.book import BookEntry, FindingBook
from everstep_common.judging.findings import Finding
from everstep_common.judging.judgement import Judgement
from everstep_common.judging.moment import Moment
from everstep_common.reports import FindingCleared, FindingRaised
from everstep_proto.generated import fleet_pb2
from everstep_proto.reports import record_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Stored:
    finding: Finding
    since: Stamp
    last: Stamp | None = None


def load_findings(text: str, conditions: Collection[str] = CONDITIONS) -> tuple[BookEntry, ...]:
    """Return what ``dump_findings`` wrote; nothing, and a log line, when it cannot be read."""
    try:
        stored = from_json(tuple[_Stored, ...], json.loads(text), "findings")
    except (ValueError, CodecError) as error:
        logger.warning("the open findings of the last agent cannot be read: %s", error)
        return ()
    unknown = [one.finding.condition for one in stored if one.finding.condition not in conditions]
    if unknown:
        logger.warning("this agent does not know the conditions %s", ", ".join(unknown))
    return tuple(
        BookEntry(entry.finding, entry.since, entry.last)
        for entry in stored
        if entry.finding.condition in conditions
    )


def dump_findings(findings: Iterable[BookEntry]) -> str:
    """Return open findings as text."""
    return json_text(tuple(map(_stored, findings)), tuple[_Stored, ...])


def _stored(known: BookEntry) -> _Stored:
    last = known.last or known.since
    return _Stored(known.finding, _stamp(known.since), _stamp(last))


def _stamp(moment: Moment) -> Stamp:
    return Stamp(moment.boot_id, moment.boot_ns, moment.wall_ns)


class Findings:
    """The one place where findings are raised and cleared."""

    def __init__(
        self,
        book: FindingBook,
        record: Callable[[fleet_pb2.Record], None],
        keep: Callable[[str], None],
        stamp: StampClock,
    ) -> None:
        self.book = book
        self._record = record
        self._keep = keep
        self._stamp = stamp

    def report(self, judgements: Iterable[Judgement]) -> None:
        """Enter one poll's judgements and tell the controller what changed."""
        changes = self.book.enter_judgements(judgements, self._stamp())
        for known in changes.raised:
            finding = known.finding
            logger.warning(
                "raised %s on %s: %s", finding.condition, finding.component, finding.message
            )
            self._record(record_of(FindingRaised(finding, _stamp(known.since))))
        for cleared in changes.cleared:
            key = cleared.key
            logger.info("cleared %s on %s: %s", key.condition, key.component, cleared.evidence)
            report = FindingCleared(key.component, key.condition, cleared.evidence)
            self._record(record_of(report))
        if changes or changes.again:
            self._keep(dump_findings(self.book.open_findings))

    def open_now(self) -> tuple[Finding, ...]:
        """Return the open findings for Hello."""
        return tuple(known.finding for known in self.book.open_findings)

    def open_since(self) -> tuple[Stamp, ...]:
        """Return since when each of them is open."""
        return tuple(_stamp(known.since) for known in self.book.open_findings)
