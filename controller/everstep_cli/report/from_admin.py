"""Account from what the controller answers. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from everstep_cli.report.account import Account, IncidentAccount, Note, Period, Ratio, Slice
from everstep_cli.report.amounts import span
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


def account_of_fleet(
    ledger: admin_pb2.FleetLedger,
    incidents: Iterable[admin_pb2.Incident],
    events: Sequence[admin_pb2.Event],
) -> Account:
    """Return the account of all jobs together, with the incidents that began in its time."""
    whole = ledger.whole
    within = (one for one in incidents if whole.begin_ns <= one.onset_ns < whole.end_ns)
    return Account(
        subject="All jobs",
        begin_ns=whole.begin_ns,
        end_ns=whole.end_ns,
        unit="time of nodes",
        slices=list(_slices(whole.categories)),
        incidents=[_incident(one) for one in within],
        periods=[
            Period(one.begin_ns, one.end_ns, list(_slices(one.categories)), one.failures)
            for one in ledger.periods
        ],
        facts=[("jobs", str(whole.jobs))],
        acquitted=list(acquitted(events)),
        held_back=list(held_back(events)),
        definitions=ledger.definitions,
    )


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
