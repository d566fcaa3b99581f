"""History writer: writes down what the state tells of hours, incidents and days, as it changes."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec

from everstep_controller.core.accounting.timeline import HOUR_NS
from everstep_controller.core.fleet.incidents import incidents_of_job
from everstep_controller.core.model.node_days import DAY_NS
from everstep_controller.core.model.state import State
from everstep_controller.journal.group_commit import GroupCommit
from everstep_controller.journal.history_rows import (
    Content,
    IncidentTold,
    UnreadableHistoryError,
    content_of,
    history_row,
    kind_of,
)
from everstep_controller.journal.port import HistoryKind, HistoryRange, HistoryRow, JournalWriter
from everstep_controller.runtime.derived_history import incident_told, job_hours, node_days

# What is going on is written down so often: a crash costs nothing, since the state has it.
_GOING_ON_NS = 600_000_000_000
# Rows of one transaction: a start may find ten thousand incidents to write.
_ROWS_MAX = 500
# A start writes the days from so many before it on: nobody may have written them.
_DAYS_AT_START = 8
_NODES_AT_ONCE = 500
# Nothing is learned of an incident that is over for so long.
_SETTLED_NS = 3_600_000_000_000
# Hours and days are told by the state for so long.
_WRITTEN_AGAIN_NS = 9 * DAY_NS


_Place = tuple[HistoryKind, str, int]


@dataclass(frozen=True, slots=True)
class _Due:
    """A row to write, by the kind, key and begin that it is of, and what is compared."""

    place: _Place
    content: Content
    at_ns: int
    # It will be another one in a moment.
    goes_on: bool

    def row(self) -> HistoryRow:
        return history_row(self.place[1], self.place[2], self.at_ns, self.content)


@dataclass(slots=True)
class HistoryWriter:
    """Writes rows that have changed since it wrote them last; after a start it knows of none."""

    journal: GroupCommit
    _written: dict[_Place, tuple[Content, int]] = field(default_factory=dict)
    # Incidents that are over for so long that nothing more is learned.
    _settled: set[str] = field(default_factory=set)
    _days_ns: int = 0
    # By job, the newest hour of it that is written and does not change any more.
    _through_ns: dict[str, int] = field(default_factory=dict)

    async def write(self, state: State, now_ns: int, *, all_now: bool = False) -> None:
        """Write down what has changed; ``all_now``: what is going on as well. JournalFull."""
        through = {job_id: job.ledger.folded_through_ns for job_id, job in state.jobs.items()}
        told = [*_hours(state, now_ns, self._through_ns), *_incidents(state, now_ns, self._settled)]
        if all_now or now_ns - self._days_ns >= _GOING_ON_NS:
            told += [one async for one in _days(state, now_ns, self._days_ns)]
            self._days_ns = now_ns
        due = [one for one in told if self._is_due(one, now_ns, all_now=all_now)]
        for at in range(0, len(due), _ROWS_MAX):
            some = due[at : at + _ROWS_MAX]
            await self.journal.call(partial(_save, due=some))
            self._written.update({one.place: (one.content, one.at_ns) for one in some})
        self._through_ns = through
        self._forget(state, now_ns)

    def _is_due(self, one: _Due, now_ns: int, *, all_now: bool) -> bool:
        content, at_ns = self._written.get(one.place, (None, 0))
        if content == one.content:
            return False
        return all_now or not one.goes_on or now_ns - at_ns >= _GOING_ON_NS

    def _forget(self, state: State, now_ns: int) -> None:
        """Forget what is not written again: for the state has it no more, or it is settled."""
        since_ns = now_ns - _WRITTEN_AGAIN_NS
        for place, (content, at_ns) in list(self._written.items()):
            if place[0] is HistoryKind.INCIDENT and isinstance(content, IncidentTold):
                if content.over_ns and content.over_ns < now_ns - _SETTLED_NS:
                    self._settled.add(place[1])
                    del self._written[place]
            elif at_ns < since_ns:
                del self._written[place]
        self._settled &= state.incidents.keys()


def _hours(state: State, now_ns: int, through_ns: Mapping[str, int]) -> Iterator[_Due]:
    for job_id, job in state.jobs.items():
        for mark, content in job_hours(state, job, now_ns, through_ns.get(job_id, 0)):
            place = (HistoryKind.JOB_HOUR, job_id, mark.begin_ns)
            yield _Due(place, content, mark.until_ns, goes_on=mark.until_ns % HOUR_NS > 0)


def _incidents(state: State, now_ns: int, settled: set[str]) -> Iterator[_Due]:
    for job in state.jobs.values():
        for incident in incidents_of_job(state, job):
            if incident.id in settled:
                continue
            place = (HistoryKind.INCIDENT, incident.id, incident.onset_ns)
            content = incident_told(state, job, incident, now_ns)
            yield _Due(place, content, now_ns, goes_on=not incident.over_ns)


async def _days(state: State, now_ns: int, before_ns: int) -> AsyncIterator[_Due]:
    """Yield days from the one of the last time on; others have their turn in between."""
    days_before = 1 if before_ns else _DAYS_AT_START
    from_ns = ((before_ns or now_ns) // DAY_NS - days_before) * DAY_NS
    for count, (key, begin_ns, content) in enumerate(node_days(state, now_ns, from_ns)):
        end_ns = begin_ns + DAY_NS
        place = (kind_of(content), key, begin_ns)
        yield _Due(place, content, min(now_ns, end_ns), goes_on=end_ns > now_ns)
        if count % _NODES_AT_ONCE == 0:
            await asyncio.sleep(0)


def _save(store: JournalWriter, due: Iterable[_Due]) -> None:
    store.save_history([_with_known(store, one).row() for one in due])


def _with_known(store: JournalWriter, one: _Due) -> _Due:
    """Return an incident with what the state has forgotten of it since it was written."""
    if not isinstance(one.content, IncidentTold):
        return one
    kind, key, _ = one.place
    for row in store.history(HistoryRange(kind, 0, 2**63 - 1, key)):
        try:
            known = content_of(row, IncidentTold)
        except UnreadableHistoryError:
            continue  # the state tells it anew
        kept = {
            name: getattr(known, name)
            for name in ("device", "members", "verdict", "parts", "deaths", "evidence")
            if not getattr(one.content, name)
        }
        return replace(one, content=msgspec.structs.replace(one.content, **kept))
    return one
