"""Account from what the controller answers. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from everstep_cli.report.account import (
    Account,
    Bill,
    IncidentAccount,
    Note,
    Period,
    Ratio,
    Slice,
)
from everstep_cli.report.amounts import moment, share, span
from everstep_cli.report.from_history import incidents_of, periods_of_hours
from everstep_controller.core.accounting.categories import Category, Group
from everstep_controller.core.accounting.ledger import TARGET
from everstep_controller.core.accounting.reliability import FailureBudget, failure_budget
from everstep_controller.core.accounting.variants import Measured, published
from everstep_proto.generated import admin_pb2

_NS = 1_000_000_000
_DAY_S = 86_400
_USED, _BY_STALLS = "used of what may be lost for 99.5 %", "all, by stalls"
_EACH = "what each failure may cost to hold 99.5 %"
_KNOWN: Mapping[str, Category] = {one.value: one for one in Category}
# Published ratios that want more of a job than where its time went.
_OF_ONE_JOB = frozenset({"Meta", "Google resiliency", "ByteRobust hourly", "ByteRobust worst hour"})
# Of jobs that name no account, or no queue.
NO_NAME = "(none)"
_HELD_BACK = ("IsolationHeldBack", "IsolationAdvised", "IsolationOverridden", "PlanDropped")
_SUSPECTED = ("NodeSuspect", "NodeDoubtful")
# After these a node is no more only suspected.
_CONVICTED = ("NodeIsolated", "NodeLost", "NodeRepairing", "NodeDeclaredLost")
_CLEARED = "NodeHealthy"


@dataclass(frozen=True, slots=True)
class Told:
    """What is told beside a ledger: incidents, oldest first, and events of its time."""

    incidents: Sequence[IncidentAccount] = ()
    events: Sequence[admin_pb2.Event] = ()
    # Of the history.
    hours: Sequence[admin_pb2.HistoryRow] = ()
    accounts: admin_pb2.FleetLedger | None = None
    queues: admin_pb2.FleetLedger | None = None


def account_of_job(
    ledger: admin_pb2.Ledger, detail: admin_pb2.JobDetail, events: Sequence[admin_pb2.Event]
) -> Account:
    """Return the account of a job as its state alone tells it; ``events`` are oldest first."""
    incidents = incidents_of([], ledger.incidents, by_nodes=False)
    return account_of_life(ledger, detail, Told(incidents, events))


def account_of_life(ledger: admin_pb2.Ledger, detail: admin_pb2.JobDetail, told: Told) -> Account:
    """Return the account of a job's whole life, with what the history has of it."""
    return Account(
        subject=f"Job {ledger.job}",
        begin_ns=ledger.begin_ns,
        end_ns=ledger.begin_ns + ledger.wall_ns,
        unit="wall clock",
        slices=sorted(slices(ledger.categories), key=lambda one: -one.seconds),
        of_one_job=True,
        devices=list(slices(ledger.devices)) if ledger.degraded_device_s else [],
        node_days=_node_days(ledger),
        incidents=told.incidents,
        periods=[
            replace(one, failures=_failures_in(one, told.incidents))
            for one in periods_of_hours(told.hours, ledger)
        ],
        ratios=[Ratio(r.name, r.value, r.definition, r.source) for r in ledger.published],
        facts=list(_facts(ledger, detail)),
        figures=list(_figures(ledger)),
        acquitted=list(acquitted(told.events)),
        held_back=list(held_back(told.events)),
        definitions=ledger.definitions,
    )


def _failures_in(period: Period, incidents: Iterable[IncidentAccount]) -> int:
    span_of = Range(period.begin_ns, period.end_ns)
    return sum(not one.planned and span_of.has(one.onset_ns) for one in incidents)


def _facts(ledger: admin_pb2.Ledger, detail: admin_pb2.JobDetail) -> Iterator[tuple[str, str]]:
    members = detail.summary.members
    yield "steps that count", f"{ledger.steps:,}"
    yield "nodes", str(len(members)) if members else str(detail.nodes_min)
    if ledger.mttf_s:
        yield "between failures, on average", span(ledger.mttf_s)
    if ledger.failures:
        # Where snapshots and saves alone have taken more, failures have none.
        yield _USED, share(ledger.budget_burnt, 1) if ledger.budget_per_failure_s else _BY_STALLS


def _figures(ledger: admin_pb2.Ledger) -> Iterator[tuple[str, str]]:
    if ledger.failures:
        yield _EACH, span(ledger.budget_per_failure_s)
    if ledger.degraded_device_s:
        yield "ETTR_devices: in device-seconds", share(ledger.ettr_devices, 1)
    if ledger.expected_ettr:
        expected = share(ledger.expected_ettr, 1)
        yield "ETTR that its failures, recoveries and snapshots predict (Daly 2006)", expected


def _node_days(ledger: admin_pb2.Ledger) -> float:
    """Return the node-days of a job, by which its failure rate was computed."""
    rate = ledger.failures_per_1000_node_days
    return 1000 * ledger.failures / rate if rate else 0.0


@dataclass(frozen=True, slots=True)
class Range:
    """Time that a report is of, in nanoseconds since 1970, without ``end_ns`` itself."""

    begin_ns: int
    end_ns: int

    @property
    def days(self) -> int:
        """Return how many days it has, a part of one among them."""
        return -(-(self.end_ns - self.begin_ns) // (_DAY_S * _NS))

    def has(self, at_ns: int) -> bool:
        """Return whether a time is in it."""
        return self.begin_ns <= at_ns < self.end_ns


class NoTimeError(Exception):
    """Nothing was accounted for in that range: the sentence says when something was."""


def account_of_days(
    subject: str, ledger: admin_pb2.FleetLedger, wanted: Range, told: Told
) -> Account:
    """Return the account of the days of a ledger that begin in a range. Raises NoTimeError."""
    days = [one for one in ledger.periods if wanted.has(one.begin_ns)]
    if not days:
        raise NoTimeError(days_there_are(ledger))
    whole = Range(days[0].begin_ns, min(days[-1].end_ns, wanted.end_ns))
    summed = _added(days)
    account = Account(
        subject=subject,
        begin_ns=whole.begin_ns,
        end_ns=whole.end_ns,
        unit="node time",
        slices=summed,
        node_days=sum(one.seconds for one in summed) / _DAY_S,
        incidents=[one for one in told.incidents if whole.has(one.onset_ns)],
        periods=[
            Period(one.begin_ns, one.end_ns, list(slices(one.categories)), one.failures)
            for one in days
        ],
        acquitted=list(acquitted(told.events)),
        held_back=list(held_back(told.events)),
        definitions=ledger.definitions,
        notes=ledger.notes,
        accounts=_bills(told.accounts),
        queues=_bills(told.queues),
    )
    budget = _budget(summed, len(account.failures))
    return replace(
        account,
        ratios=list(_published(summed)),
        facts=list(_facts_of_days(account, budget)),
        figures=list(_allowed(budget)),
    )


def _budget(summed: Sequence[Slice], failures: int) -> FailureBudget:
    spent = (one.seconds for one in summed if one.group is Group.INCIDENT)
    stalls = (one.seconds for one in summed if one.name.startswith("ckpt.stall."))
    whole_s = sum(one.seconds for one in summed)
    return failure_budget(TARGET, whole_s, sum(stalls), sum(spent), failures)


def _facts_of_days(account: Account, budget: FailureBudget) -> Iterator[tuple[str, str]]:
    if failures := len(account.failures):
        between_s = (account.end_ns - account.begin_ns) / _NS / failures
        yield "between failures, on average", span(between_s)
        yield _USED, share(budget.burnt, 1) if budget.per_failure_s else _BY_STALLS


def _allowed(budget: FailureBudget) -> Iterator[tuple[str, str]]:
    if budget.per_failure_s:
        yield _EACH, f"{span(budget.per_failure_s)} of nodes' time"


def _published(summed: Sequence[Slice]) -> Iterator[Ratio]:
    """Yield what others would call the ratio of several jobs together, as far as days tell it."""
    totals = {_KNOWN[one.name]: round(one.seconds * _NS) for one in summed if one.name in _KNOWN}
    for one in published(Measured(totals, {})):
        if one.name not in _OF_ONE_JOB:
            yield Ratio(one.name, one.value, one.definition, one.source)


def _bills(ledger: admin_pb2.FleetLedger | None) -> list[Bill]:
    """Return what each account or queue had; nothing where no job names one."""
    rows = ledger.periods if ledger is not None else []
    if not any(one.key != NO_NAME for one in rows):
        return []
    return [
        Bill(one.key, one.device_ns, one.ettr_time, one.failures, one.cost, one.cost_lost)
        for one in rows
    ]


def days_there_are(ledger: admin_pb2.FleetLedger) -> str:
    """Return of which days a ledger tells, in words."""
    if not ledger.periods:
        return "no job has had any time yet"
    first, last = ledger.periods[0].begin_ns, ledger.periods[-1].begin_ns
    return f"there are days from {moment(first)[:10]} to {moment(last)[:10]}"


def _added(days: Iterable[admin_pb2.FleetPeriod]) -> list[Slice]:
    """Return the categories of all days together, the most first."""
    found: dict[str, Slice] = {}
    for day in days:
        for one in slices(day.categories):
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


def slices(categories: Iterable[admin_pb2.Category]) -> Iterator[Slice]:
    """Yield the time of each category, in seconds."""
    for one in categories:
        yield Slice(one.name, one.time_ns / _NS, one.meaning)
