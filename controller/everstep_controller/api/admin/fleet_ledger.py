"""Ledger of the fleet: what the time of all jobs went to, by day, week or month."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from types import MappingProxyType

from everstep_controller.api.admin.errors import UnusableRequestError
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.accounting.ledger import ettr_time, ettr_work
from everstep_controller.journal.port import DAY_NS, LedgerRow
from everstep_proto.generated import admin_pb2

DEFINITIONS = (
    "Times are those of nodes: a second of a job on 8 nodes counts 8, by the nodes that it has at "
    "the time.",
    "ETTR_time = (productive + slow.*) / time of nodes in jobs. ETTR_work = productive / the same.",
    "A step that is taken back counts against the day on which it is; time that was not written "
    "down, for the controller was away, counts for the day on which it is back.",
)
_PERIODS_DEFAULT, _PERIODS_MAX = 14, 400
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


@dataclass(frozen=True, slots=True)
class Periods:
    """Periods of a kind, the last of which is going on; times are nanoseconds."""

    kind: str
    count: int
    now_ns: int

    @property
    def first_ns(self) -> int:
        """Return when the first one began."""
        begin = self.begin(self.now_ns)
        for _ in range(self.count - 1):
            begin = self.begin(begin - 1)
        return begin

    def begin(self, at_ns: int) -> int:
        """Return when the period began that a time is in."""
        at = datetime.fromtimestamp(at_ns // 1_000_000_000, UTC)
        return round(_BEGINS[self.kind](at).timestamp()) * 1_000_000_000

    def end(self, begin_ns: int) -> int:
        """Return when the period is over that began at a time, or now."""
        return min(self.now_ns, self.begin(begin_ns + _DAYS_MAX[self.kind] * DAY_NS))


def periods_of(request: admin_pb2.GetFleetLedgerRequest, now_ns: int) -> Periods:
    """Return which periods are asked for. Raises UnusableRequestError."""
    kind = request.period or "day"
    if kind not in _BEGINS:
        raise UnusableRequestError(f"there is no period {kind!r}; there is {', '.join(_BEGINS)}")
    return Periods(kind, min(request.periods or _PERIODS_DEFAULT, _PERIODS_MAX), now_ns)


@dataclass(slots=True)
class _Sum:
    jobs: set[str] = field(default_factory=set)
    totals: Counter[Category] = field(default_factory=Counter)
    failures: int = 0

    def add(self, before: LedgerRow, row: LedgerRow) -> None:
        self.jobs.add(row.job)
        self.failures += row.failures - before.failures
        for name in before.totals.keys() | row.totals.keys():
            gained = row.totals.get(name, 0) - before.totals.get(name, 0)
            if name in _CATEGORIES:  # one of another version is time that nobody can name
                self.totals[_CATEGORIES[name]] += gained * row.nodes


def fleet_ledger(
    periods: Periods, rows: Iterable[LedgerRow], current: Iterable[LedgerRow]
) -> admin_pb2.FleetLedger:
    """Return the fleet's time by period, from rows by job and time, and from how it is now."""
    sums: dict[int, _Sum] = {}
    whole = _Sum()
    every = sorted((*rows, *current), key=lambda row: (row.job, row.at_ns))
    for job, told in groupby(every, key=lambda row: row.job):
        for before, row in pairwise((LedgerRow(job, 0, {}), *told)):
            if row.at_ns >= periods.first_ns and before.totals != row.totals:
                sums.setdefault(periods.begin(row.at_ns), _Sum()).add(before, row)
                whole.add(before, row)
    return admin_pb2.FleetLedger(
        periods=[_period(told, begin, periods.end(begin)) for begin, told in sorted(sums.items())],
        whole=_period(whole, periods.first_ns, periods.now_ns),
        definitions=DEFINITIONS,
    )


def _period(told: _Sum, begin_ns: int, end_ns: int) -> admin_pb2.FleetPeriod:
    node_ns = sum(told.totals.values())
    return admin_pb2.FleetPeriod(
        begin_ns=begin_ns,
        end_ns=end_ns,
        jobs=len(told.jobs),
        node_ns=node_ns,
        categories=[
            admin_pb2.Category(name=category.value, time_ns=amount, meaning=category.meaning)
            for category, amount in told.totals.most_common()
            if amount
        ],
        ettr_time=ettr_time(told.totals, node_ns),
        ettr_work=ettr_work(told.totals, node_ns),
        failures=told.failures,
    )
