"""Queries of the history: rows that are written down, and over them what the state tells now."""

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec.structs import replace

from everstep_controller.api.admin.errors import UnknownNameError, UnusableRequestError
from everstep_controller.api.admin.fleet_ledger import (
    DatedIncident,
    Hour,
    LedgerQuestion,
    hours_in_order,
    ledger_of_hours,
    ledger_of_incidents,
)
from everstep_controller.core.fleet.incidents import incidents_of_job
from everstep_controller.core.model.state import State
from everstep_controller.journal.history_rows import (
    ContentT,
    IncidentTold,
    JobHour,
    UnreadableHistoryError,
    content_of,
    text_of,
)
from everstep_controller.journal.port import (
    DAY_NS,
    HistoryKind,
    HistoryRange,
    HistoryRow,
    JournalReader,
)
from everstep_controller.runtime.derived_history import incident_told, job_hours
from everstep_proto.generated import admin_pb2

logger = logging.getLogger(__name__)

_NAMED_MAX = 8
_LEFT_OUT = "a row of the history is left out: %s"


@dataclass(frozen=True, slots=True)
class CurrentHistory:
    """What the state tells of the history now, and may not be written down yet."""

    hours: list[Hour]
    incidents: list[DatedIncident]


def current_history(state: State, asked: LedgerQuestion) -> CurrentHistory:
    """Return what the state tells of a question."""
    now_ns, first_ns, end_ns = (
        asked.periods.now_ns, asked.periods.first_ns, asked.periods.end_ns
    )  # fmt: skip
    if not asked.is_of_incidents:
        told = (
            Hour(job_id, mark.begin_ns, content)
            for job_id, job in state.jobs.items()
            for mark, content in job_hours(state, job, now_ns)
            if mark.begin_ns < end_ns
        )
        return CurrentHistory(list(told), [])
    incidents = (
        DatedIncident(one.id, one.onset_ns, incident_told(state, job, one, now_ns))
        for job in state.jobs.values()
        for one in incidents_of_job(state, job)
        if first_ns <= one.onset_ns < end_ns
    )
    return CurrentHistory([], list(incidents))


def ledger_from(
    history: JournalReader, asked: LedgerQuestion, current: CurrentHistory
) -> admin_pb2.FleetLedger:
    """Return the ledger of a question. Raises UnknownNameError for a job that nobody knows."""
    first_ns = asked.periods.first_ns
    kind = HistoryKind.INCIDENT if asked.is_of_incidents else HistoryKind.JOB_HOUR
    span = HistoryRange(
        kind, first_ns, asked.periods.end_ns, last_of_days=kind is HistoryKind.JOB_HOUR
    )
    if asked.is_of_incidents:
        told = ledger_of_incidents(asked, _incidents(history, span, current))
    else:
        rows = history.history_before(span).values()
        before = {row.key: one for row, one in _contents(rows, JobHour)}
        before |= {one.job: one.told for one in current.hours if one.begin_ns < first_ns}
        written = (
            Hour(row.key, row.begin_ns, one)
            for row, one in _contents(history.history(span), JobHour)
        )
        newer = _last_of_days(one for one in current.hours if one.begin_ns >= first_ns)
        told = ledger_of_hours(asked, before, hours_in_order(written, newer))
    if asked.job and not told.whole.jobs:
        _refuse_unknown(history, asked, current)
    told.notes.extend(_notes(history, asked, kind))
    return told


def history_range(request: admin_pb2.GetHistoryRequest, now_ns: int) -> HistoryRange:
    """Return which rows are asked for. Raises UnusableRequestError."""
    kinds = {kind.value for kind in HistoryKind}
    if request.kind not in kinds:
        raise UnusableRequestError(
            f"the history has no {request.kind!r}; it has {', '.join(sorted(kinds))}"
        )
    until_ns = min(request.until_ns or now_ns, now_ns) + 1
    if request.since_ns >= until_ns:
        raise UnusableRequestError("the range ends before it begins, or begins after now")
    return HistoryRange(HistoryKind(request.kind), request.since_ns, until_ns, request.key)


async def history_rows(
    history: JournalReader, asked: HistoryRange, *, known: bool = False
) -> AsyncIterator[admin_pb2.HistoryRow]:
    """Yield the rows of a range, a day after the other: of years nobody has all in memory.

    Raises UnknownNameError where a key has none, unless it is ``known`` otherwise.
    """
    none = True
    first_ns, last_ns = await asyncio.to_thread(_span, history, asked.kind)
    begin_ns = max(asked.since_ns, first_ns)
    while begin_ns < min(asked.until_ns, last_ns + 1):
        end_ns = min((begin_ns // DAY_NS + 1) * DAY_NS, asked.until_ns)
        day = dataclasses.replace(asked, since_ns=begin_ns, until_ns=end_ns)
        for row in await asyncio.to_thread(_day_rows, history, day):
            none = False
            yield row
        begin_ns = end_ns
    if none and asked.key and not known:
        raise UnknownNameError(await asyncio.to_thread(_nothing_of, history, asked))


def _nothing_of(history: JournalReader, asked: HistoryRange) -> str:
    with closing(history.another_reader()) as reader:
        keys = reader.history_keys(asked, _NAMED_MAX + 1)
    named = ", ".join(keys[:_NAMED_MAX]) or "nobody"
    more = " and others" if len(keys) > _NAMED_MAX else ""
    return f"the history of these days has nothing of {asked.key!r}; it has rows of {named}{more}"


def _span(history: JournalReader, kind: HistoryKind) -> tuple[int, int]:
    with closing(history.another_reader()) as reader:
        return reader.history_span(kind)


def _day_rows(history: JournalReader, asked: HistoryRange) -> list[admin_pb2.HistoryRow]:
    found = []
    with closing(history.another_reader()) as reader:
        for row in reader.history(asked):
            try:
                told = text_of(row)
            except UnreadableHistoryError as error:
                logger.error(_LEFT_OUT, error)
                continue
            found.append(
                admin_pb2.HistoryRow(
                    kind=row.kind.value,
                    key=row.key,
                    begin_ns=row.begin_ns,
                    at_ns=row.at_ns,
                    told=told,
                )
            )
    return found


def _last_of_days(hours: Iterable[Hour]) -> list[Hour]:
    """Return of each job and day the last hour, which tells the day."""
    last = {(one.job, one.begin_ns // DAY_NS): one for one in hours}
    return list(last.values())


def _incidents(
    history: JournalReader, span: HistoryRange, current: CurrentHistory
) -> list[DatedIncident]:
    known = {
        row.key: DatedIncident(row.key, row.begin_ns, one)
        for row, one in _contents(history.history(span), IncidentTold)
    }
    for one in current.incidents:
        written = known.get(one.id)
        # What its state has forgotten since stays as it was written.
        device = one.told.device or (written.told.device if written is not None else "")
        known[one.id] = DatedIncident(one.id, one.begin_ns, _with_device(one.told, device))
    return sorted(known.values(), key=lambda one: (one.begin_ns, one.id))


def _with_device(told: IncidentTold, device: str) -> IncidentTold:
    return told if told.device == device else replace(told, device=device)


def _contents(
    rows: Iterable[HistoryRow], kind: type[ContentT]
) -> Iterator[tuple[HistoryRow, ContentT]]:
    for row in rows:
        try:
            yield row, content_of(row, kind)
        except UnreadableHistoryError as error:
            logger.error(_LEFT_OUT, error)


def _refuse_unknown(history: JournalReader, asked: LedgerQuestion, current: CurrentHistory) -> None:
    """Raise UnknownNameError with the jobs there are, unless it is one without time there."""
    span = HistoryRange(HistoryKind.JOB_HOUR, 0, asked.periods.now_ns + 1, last_of_days=True)
    names = {one.told.name or one.job: one.job for one in current.hours}
    for row, hour in _contents(history.history(span), JobHour):
        names[hour.name or row.key] = row.key
    if asked.job in names or asked.job in names.values():
        return
    told = ", ".join(sorted(names)[:_NAMED_MAX]) or "none"
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    raise UnknownNameError(f"no job named {asked.job!r} is in the history; there is {told}{more}")


def _notes(history: JournalReader, asked: LedgerQuestion, kind: HistoryKind) -> Iterator[str]:
    first_ns, last_ns = history.history_span(kind)
    if not first_ns or first_ns > asked.periods.first_ns + DAY_NS:
        yield f"The history begins on {_date(first_ns)}." if first_ns else "The history is empty."
    if last_ns > asked.periods.now_ns:
        yield (
            f"The history has rows of times to come, up to {_date(last_ns)}: a clock was wrong "
            "when they were written. They are left out, and no job's time is lost by it."
        )


def _date(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns / 1e9, UTC):%Y-%m-%d}"
