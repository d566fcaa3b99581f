"""Ledger of the fleet: what the time of jobs went to, by period, or by job, queue, cause and more.

Hours of jobs tell periods, jobs, queues and accounts; incidents tell causes, nodes, devices and
generations, each with what its stages have cost.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain, groupby
from types import MappingProxyType

from everstep_controller.api.admin.errors import UnusableRequestError
from everstep_controller.core.accounting.categories import Category, Group
from everstep_controller.core.accounting.ledger import ettr_time, ettr_work
from everstep_controller.journal.history_rows import IncidentTold, JobHour
from everstep_controller.journal.port import DAY_NS
from everstep_proto.generated import admin_pb2

_DEFINITIONS = (
    "Times are those of nodes: a second of a job on 8 nodes counts 8, by the nodes that it has at "
    "the time.",
    "ETTR_time = (productive + slow.*) / time of nodes in jobs. ETTR_work = productive / the same. "
    "ETTR_devices = (productive + slow.*) in device-seconds / the device-seconds of as many nodes "
    "as the jobs may have. A device is a rank's: one rank that drives several counts once.",
    "A step that is taken back counts against the hour in which it is.",
)
_DEFINITIONS_INCIDENTS = (
    "Times are those of nodes: a second of a job on 8 nodes counts 8.",
    "An incident counts for the day on which it began, with all that it has cost until now.",
)
_PERIODS_DEFAULT, _PERIODS_MAX = 14, 400
_INCIDENTS_NAMED = 8
_NS_PER_HOUR = 3.6e12
_CATEGORIES = {category.value: category for category in Category}


def _day(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


_BEGINS: Mapping[str, Callable[[datetime], datetime]] = MappingProxyType(
    {
        "day": _day,
        "week": lambda at: _day(at) - timedelta(days=at.weekday()),
        "month": lambda at: _day(at).replace(day=1),
    }
)
_DAYS_MAX: Mapping[str, int] = MappingProxyType({"day": 1, "week": 7, "month": 31})

NONE = "(none)"
# By what the hours of jobs are told apart, besides time; and incidents.
_OF_HOURS: Mapping[str, Callable[[str, JobHour], str]] = MappingProxyType(
    {
        "job": lambda job, _: job,
        "queue": lambda _, hour: hour.queue or NONE,
        "account": lambda _, hour: hour.account or NONE,
    }
)
_OF_INCIDENTS: Mapping[str, Callable[[IncidentTold], str]] = MappingProxyType(
    {
        "cause": lambda one: one.cause,
        "node": lambda one: one.node or NONE,
        "device": lambda one: f"{one.node} {one.device}" if one.device else NONE,
        "generation": lambda one: f"{one.job} generation {one.generation}",
    }
)
DIMENSIONS = (*_BEGINS, *_OF_HOURS, *_OF_INCIDENTS)


@dataclass(frozen=True, slots=True)
class Hour:
    """An hour of a job, and when it began."""

    job: str
    begin_ns: int
    told: JobHour


@dataclass(frozen=True, slots=True)
class DatedIncident:
    """An incident, its id, and when it began."""

    id: str
    begin_ns: int
    told: IncidentTold


@dataclass(frozen=True, slots=True)
class Periods:
    """Periods of a kind, the last of which is going on or is asked for; times are nanoseconds."""

    kind: str
    count: int
    now_ns: int
    # The last one ends before this; 0: now.
    until_ns: int = 0

    @property
    def end_ns(self) -> int:
        """Return before when what counts began."""
        return min(self.until_ns or self.now_ns + 1, self.now_ns + 1)

    @property
    def over_ns(self) -> int:
        """Return when the last one is over, or now."""
        return min(self.end_ns, self.now_ns)

    @property
    def first_ns(self) -> int:
        """Return when the first one began."""
        begin = self.begin(self.end_ns - 1)
        for _ in range(self.count - 1):
            begin = self.begin(begin - 1)
        return begin

    def begin(self, at_ns: int) -> int:
        """Return when the period began that a time is in."""
        at = datetime.fromtimestamp(at_ns // 1_000_000_000, UTC)
        return round(_BEGINS[self.kind](at).timestamp()) * 1_000_000_000

    def end(self, begin_ns: int) -> int:
        """Return when the period is over that began at a time, or now."""
        return min(self.over_ns, self.begin(begin_ns + _DAYS_MAX[self.kind] * DAY_NS))


@dataclass(frozen=True, slots=True)
class LedgerQuestion:
    """Which time is asked for, by what it is told apart, and what a device costs for an hour."""

    by: str
    periods: Periods
    # Id or name of jobs; "": all.
    job: str = ""
    price: float = 0.0

    @property
    def is_of_incidents(self) -> bool:
        """Whether incidents tell it, and no hours."""
        return self.by in _OF_INCIDENTS

    def takes(self, job: str, name: str) -> bool:
        """Return whether a job is asked about."""
        return self.job in ("", job, name)


def question_of(
    request: admin_pb2.GetFleetLedgerRequest, now_ns: int, price: float = 0.0
) -> LedgerQuestion:
    """Return what is asked for. Raises UnusableRequestError."""
    by = request.period or "day"
    if by not in DIMENSIONS:
        raise UnusableRequestError(f"nothing is told by {by!r}; there is {', '.join(DIMENSIONS)}")
    if request.periods > _PERIODS_MAX:
        raise UnusableRequestError(
            f"there is no row of {request.periods} periods ago: ask for the last 1 to "
            f"{_PERIODS_MAX}"
        )
    if request.until_ns < 0:
        raise UnusableRequestError("no period ends before 1970: leave until_ns out for now")
    kind, count = by if by in _BEGINS else "day", request.periods or _PERIODS_DEFAULT
    return LedgerQuestion(by, Periods(kind, count, now_ns, request.until_ns), request.job, price)


@dataclass(slots=True)
class _Sum:
    jobs: set[str] = field(default_factory=set)
    totals: Counter[Category] = field(default_factory=Counter)
    failures: int = 0
    incidents: list[str] = field(default_factory=list)
    # Nanoseconds of devices: all, in productive steps, in steps that count, and as many as the jobs
    # might have had.
    device_ns: int = 0
    productive_ns: int = 0
    made_ns: int = 0
    wanted_ns: int = 0

    def add_hour(self, job: str, before: JobHour, hour: JobHour) -> None:
        self.jobs.add(job)
        self.failures += hour.failures - before.failures
        self.add_times(_gained(before, hour), hour.devices_per_node)
        wall_ns = sum(hour.totals.values()) - sum(before.totals.values())
        nodes = max(hour.nodes_max, hour.nodes)
        self.wanted_ns += wall_ns * nodes * hour.devices_per_node

    def add_incident(self, one: DatedIncident) -> None:
        self.jobs.add(one.told.job)
        self.incidents.append(one.id)
        self.failures += one.told.failure
        self.add_times(one.told.node_costs, one.told.devices_per_node)

    def add_times(self, node_ns: Mapping[str, int], devices: int) -> None:
        for name, amount in node_ns.items():
            self.device_ns += amount * devices
            category = _CATEGORIES.get(name)
            if category is None:  # one of another version is time that nobody can name
                continue
            self.totals[category] += amount
            productive = category.group is Group.PRODUCTIVE
            self.productive_ns += amount * devices * productive
            self.made_ns += amount * devices * (productive or category.group is Group.SLOW)


def _gained(before: JobHour, hour: JobHour) -> dict[str, int]:
    """Return what has come by category, in nanoseconds of nodes."""
    if before.node_ns or hour.node_ns:
        old, new, nodes = before.weighed(), hour.weighed(), 1
    else:  # of a version that told the nodes of the newest time only, too
        old, new, nodes = before.totals, hour.totals, hour.nodes
    return {
        name: (new.get(name, 0) - old.get(name, 0)) * nodes
        for name in sorted(old.keys() | new.keys())
        if new.get(name, 0) != old.get(name, 0)
    }


def ledger_of_hours(
    asked: LedgerQuestion, before: Mapping[str, JobHour], hours: Iterable[Hour]
) -> admin_pb2.FleetLedger:
    """Return the time of jobs by period or by what it is asked by, from hours of each job in order.

    ``before`` is the last hour of each job before the first period.
    """
    sums: dict[tuple[int, str], _Sum] = {}
    whole, name_of, first_ns = _Sum(), _OF_HOURS.get(asked.by), asked.periods.first_ns
    for job, told in groupby(hours, key=lambda hour: hour.job):
        last = before.get(job, JobHour({}))
        for hour in told:
            if not asked.takes(job, hour.told.name):
                continue
            if name_of is None:
                begin_ns, key = asked.periods.begin(hour.begin_ns), ""
            else:
                begin_ns, key = first_ns, name_of(job, hour.told)
            if last.totals != hour.told.totals:
                for one in (sums.setdefault((begin_ns, key), _Sum()), whole):
                    one.add_hour(job, last, hour.told)
            last = hour.told
    return _ledger(asked, sums, whole, _DEFINITIONS)


def ledger_of_incidents(
    asked: LedgerQuestion, incidents: Iterable[DatedIncident]
) -> admin_pb2.FleetLedger:
    """Return what incidents have cost, by cause, node, device or generation."""
    sums: dict[tuple[int, str], _Sum] = {}
    whole, first_ns = _Sum(), asked.periods.first_ns
    for one in incidents:
        if asked.takes(one.told.job, one.told.name):
            key = _OF_INCIDENTS[asked.by](one.told)
            for place in (sums.setdefault((first_ns, key), _Sum()), whole):
                place.add_incident(one)
    return _ledger(asked, sums, whole, _DEFINITIONS_INCIDENTS)


def _ledger(
    asked: LedgerQuestion,
    sums: Mapping[tuple[int, str], _Sum],
    whole: _Sum,
    definitions: Iterable[str],
) -> admin_pb2.FleetLedger:
    return admin_pb2.FleetLedger(
        periods=list(_rows(asked, sums)),
        whole=_row(asked, whole, "", (asked.periods.first_ns, asked.periods.over_ns)),
        definitions=definitions,
        by=asked.by,
        price_per_device_hour=asked.price,
    )


def _rows(
    asked: LedgerQuestion, sums: Mapping[tuple[int, str], _Sum]
) -> Iterator[admin_pb2.FleetPeriod]:
    """Yield periods as they follow one another, and all else by its time, the most first."""
    if asked.by in _BEGINS:
        for (begin_ns, key), told in sorted(sums.items()):
            yield _row(asked, told, key, (begin_ns, asked.periods.end(begin_ns)))
        return
    span = (asked.periods.first_ns, asked.periods.over_ns)
    for (_, key), told in sorted(sums.items(), key=lambda one: (-one[1].device_ns, one[0])):
        yield _row(asked, told, key, span)


def _row(
    asked: LedgerQuestion, told: _Sum, key: str, span: tuple[int, int]
) -> admin_pb2.FleetPeriod:
    node_ns = sum(told.totals.values())
    return admin_pb2.FleetPeriod(
        key=key,
        begin_ns=span[0],
        end_ns=span[1],
        jobs=len(told.jobs),
        node_ns=node_ns,
        device_ns=told.device_ns,
        categories=[
            admin_pb2.Category(name=category.value, time_ns=amount, meaning=category.meaning)
            for category, amount in told.totals.most_common()
            if amount
        ],
        ettr_time=ettr_time(told.totals, node_ns),
        ettr_work=ettr_work(told.totals, node_ns),
        ettr_devices=told.made_ns / told.wanted_ns if told.wanted_ns > 0 else 0.0,
        failures=told.failures,
        incidents=len(told.incidents),
        incident_ids=told.incidents[-_INCIDENTS_NAMED:],
        cost=told.device_ns / _NS_PER_HOUR * asked.price,
        cost_lost=(told.device_ns - told.productive_ns) / _NS_PER_HOUR * asked.price,
    )


def hours_in_order(hours: Iterable[Hour], newer: Iterable[Hour]) -> list[Hour]:
    """Return hours by job and time; of one that is told twice the newer one."""
    known = {(one.job, one.begin_ns): one for one in chain(hours, newer)}
    return [known[place] for place in sorted(known)]
