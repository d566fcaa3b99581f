"""Account from what the controller answers. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from everstep_cli.report.account import Account, IncidentAccount, Note, Period, Ratio, Slice
from everstep_cli.report.amounts import moment, span
from everstep_proto.generated import admin_pb2

_NS = 1_000_000_000
_HELD_BACK = ("IsolationHeldBack", "IsolationAdvised", "IsolationOverridden", "PlanDropped")
_SUSPECTED = ("NodeSuspect", "NodeDoubtful")
# After these a node is no more only suspected.
_CONVICTED = ("NodeIsolated", "NodeLost", "NodeRepairing", "NodeDeclaredLost")
_CLEARED = "NodeHealthy"


def account_of_job(
    ledger: admin_pb2.Ledger, detail: admin_pb2.JobDetail, events: Sequence[admin_pb2.Event]
) -> Account:
    """Return the account of a job's whole life; ``events`` are of its time, oldest first."""
    members = detail.summary.members
    facts = [
        ("steps that count", f"{ledger.steps:,}"),
        ("nodes", str(len(members)) if members else str(detail.nodes_min)),
    ]
    if ledger.mttf_s:
        facts.append(("between failures, on average", span(ledger.mttf_s)))
    if ledger.failures:
        facts.append(("used of what may be lost for 99.5 %", f"{ledger.budget_burnt:.0%}"))
    return Account(
        subject=f"Job {ledger.job}",
        begin_ns=ledger.begin_ns,
        end_ns=ledger.begin_ns + ledger.wall_ns,
        unit="wall clock",
        slices=list(_slices(ledger.categories)),
        incidents=[_incident(one) for one in ledger.incidents],
        ratios=[Ratio(r.name, r.value, r.definition, r.source) for r in ledger.published],
        facts=facts,
        acquitted=list(acquitted(events)),
        held_back=list(held_back(events)),
        definitions=ledger.definitions,
    )


@dataclass(frozen=True, slots=True)
class Range:
    """Time that a report is of, in nanoseconds since 1970, without ``end_ns`` itself."""

    begin_ns: int
    end_ns: int

    def has(self, at_ns: int) -> bool:
        """Return whether a time is in it."""
        return self.begin_ns <= at_ns < self.end_ns


class NoTimeError(Exception):
    """Nothing was accounted for in that range: the sentence says when something was."""


def account_of_days(
    subject: str,
    ledger: admin_pb2.FleetLedger,
    wanted: Range,
    incidents: Iterable[admin_pb2.Incident],
    events: Sequence[admin_pb2.Event],
) -> Account:
    """Return the account of the days of a ledger that begin in a range. Raises NoTimeError."""
    days = [one for one in ledger.periods if wanted.has(one.begin_ns)]
    if not days:
        raise NoTimeError(_days_there_are(ledger))
    whole = Range(days[0].begin_ns, min(days[-1].end_ns, wanted.end_ns))
    return Account(
        subject=subject,
        begin_ns=whole.begin_ns,
        end_ns=whole.end_ns,
        unit="node time",
        slices=_added(days),
        incidents=[_incident(one) for one in incidents if whole.has(one.onset_ns)],
        periods=[
            Period(one.begin_ns, one.end_ns, list(_slices(one.categories)), one.failures)
            for one in days
        ],
        acquitted=list(acquitted(events)),
        held_back=list(held_back(events)),
        definitions=[*ledger.definitions, *ledger.notes],
    )


def _days_there_are(ledger: admin_pb2.FleetLedger) -> str:
    if not ledger.periods:
        return "no job has had any time yet"
    first, last = ledger.periods[0].begin_ns, ledger.periods[-1].begin_ns
    return f"there are days from {moment(first)[:10]} to {moment(last)[:10]}"


def _added(days: Iterable[admin_pb2.FleetPeriod]) -> list[Slice]:
    """Return the categories of all days together, the most first."""
    found: dict[str, Slice] = {}
    for day in days:
        for one in _slices(day.categories):
            known = found.get(one.name, Slice(one.name, 0.0, one.meaning))
            found[one.name] = replace(known, seconds=known.seconds + one.seconds)
    return sorted(found.values(), key=lambda one: -one.seconds)


def acquitted(events: Iterable[admin_pb2.Event]) -> Iterator[Note]:
    """Yield the nodes that were suspected and are healthy again, with nothing done to them."""
    suspected: dict[str, admin_pb2.Event] = {}
    for event in events:
        if event.reason in _SUSPECTED:
            suspected.setdefault(event.subject, event)
        elif event.reason in _CONVICTED:
            suspected.pop(event.subject, None)
        elif event.reason == _CLEARED and (began := suspected.pop(event.subject, None)):
            took = span((event.at_ns - began.at_ns) / _NS)
            told = f"{began.message}; cleared after {took}: {event.message}"
            yield Note(began.at_ns, event.subject, told)


def held_back(events: Iterable[admin_pb2.Event]) -> Iterator[Note]:
    """Yield what automation did not do, or was kept from, and why."""
    for event in events:
        if event.reason in _HELD_BACK:
            yield Note(event.at_ns, event.subject, event.message)


def _slices(categories: Iterable[admin_pb2.Category]) -> Iterator[Slice]:
    for one in categories:
        yield Slice(one.name, one.time_ns / _NS, one.meaning)


def _incident(one: admin_pb2.Incident) -> IncidentAccount:
    lost = one.step_before - one.step_restored if one.has_restored else 0
    return IncidentAccount(
        id=one.incident,
        onset_ns=one.onset_ns,
        over_ns=one.over_ns,
        cause=one.cause,
        node=one.node,
        sentence=one.message,
        verdict=one.verdict,
        plan=one.plan,
        stages=list(_slices(one.costs)),
        steps_lost=max(0, lost),
    )
