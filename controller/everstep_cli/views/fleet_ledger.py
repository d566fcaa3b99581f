"""View of the fleet's ledger: a row of each period, job, queue, account, cause, node and more."""

import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import RenderableType
from rich.text import Text

from everstep_cli.views import tables
from everstep_controller.core.accounting.categories import Category, Group
from everstep_proto.generated import admin_pb2

_PERIODS = ("day", "week", "month")
_INCIDENTS = ("cause", "node", "device", "generation")
LEDGER_DIMENSIONS = (*_PERIODS, "job", "queue", "account", *_INCIDENTS)
# Of a job that runs, the step in hand is not lost: it is not made yet.
_NOT_LOST = frozenset({"productive", "inflight"})
_LOSSES_TOLD = 3
_NS_PER_HOUR = 3.6e12
# What a spreadsheet would take for a formula.
_FORMULA = ("=", "+", "-", "@")


def fleet_ledger_sheet(ledger: admin_pb2.FleetLedger) -> Iterator[RenderableType]:
    """Yield the rows, the whole, and what the numbers mean."""
    yield from (Text(note, style="yellow") for note in ledger.notes)
    if not ledger.periods:
        nothing = "No incident began" if ledger.by in _INCIDENTS else "No job had time"
        yield f"{nothing} in these days. See further back: --last N, up to 400"
        return
    made = _incident_table(ledger) if ledger.by in _INCIDENTS else _time_table(ledger)
    yield made
    yield ""
    yield Text("\n".join(ledger.definitions), style="dim")


def _time_table(ledger: admin_pb2.FleetLedger) -> RenderableType:
    of_periods, priced = ledger.by in _PERIODS, bool(ledger.price_per_device_hour)
    first = "from (UTC)" if of_periods else ledger.by
    right = (
        *(("jobs", "node hours") if of_periods else ("device hours",)),
        *("ETTR_time", "ETTR_work" if of_periods else "ETTR_devices", "failures"),
        *(("cost",) if priced else ()),
    )
    made = tables.table(first, *right, "most lost to", right=right, wrap=("most lost to",))
    for one in ledger.periods:
        made.add_row(_name(one), *_time_cells(ledger, one))
    made.add_section()
    made.add_row("all", *_time_cells(ledger, ledger.whole), style="bold")
    return made


def _time_cells(ledger: admin_pb2.FleetLedger, one: admin_pb2.FleetPeriod) -> Iterator[str]:
    of_periods = ledger.by in _PERIODS
    if of_periods:
        yield str(one.jobs)
    yield f"{(one.node_ns if of_periods else one.device_ns) / _NS_PER_HOUR:,.1f}"
    yield f"{one.ettr_time:.2%}"
    yield f"{one.ettr_work if of_periods else one.ettr_devices:.2%}"
    yield str(one.failures)
    if ledger.price_per_device_hour:
        yield f"{one.cost:,.2f}"
    yield _losses(one)


def _incident_table(ledger: admin_pb2.FleetLedger) -> RenderableType:
    cost = ("cost",) if ledger.price_per_device_hour else ()
    right = ("incidents", "failures", "device hours lost", *cost)
    wide = ("most of it", "newest")
    made = tables.table(ledger.by, *right, *wide, right=right, wrap=wide)
    for one in ledger.periods:
        made.add_row(one.key, *_incident_cells(ledger, one))
    made.add_section()
    made.add_row("all", *_incident_cells(ledger, ledger.whole), style="bold")
    return made


def _incident_cells(ledger: admin_pb2.FleetLedger, one: admin_pb2.FleetPeriod) -> Iterator[str]:
    yield str(one.incidents)
    yield str(one.failures)
    yield f"{one.device_ns / _NS_PER_HOUR:,.2f}"
    if ledger.price_per_device_hour:
        yield f"{one.cost:,.2f}"
    yield _losses(one)
    yield one.incident_ids[-1] if one.incident_ids else "-"


def _losses(one: admin_pb2.FleetPeriod) -> str:
    lost = [told for told in one.categories if told.name not in _NOT_LOST][:_LOSSES_TOLD]
    if not one.node_ns:
        return "-"
    return ", ".join(f"{told.name} {told.time_ns / one.node_ns:.1%}" for told in lost) or "-"


def _name(one: admin_pb2.FleetPeriod) -> str:
    return one.key or _day(one.begin_ns)


def _day(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns / 1e9, UTC):%Y-%m-%d}"


def fleet_ledger_csv(ledger: admin_pb2.FleetLedger) -> str:
    """Return the rows as comma-separated values: hours by category, ratios, and costs."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    names = [category.value for category in Category if category.group is not Group.ABSENT]
    writer.writerow(
        (
            *(ledger.by, "from", "to", "jobs", "node_hours", "device_hours", "ettr_time"),
            *("ettr_work", "ettr_devices", "failures", "incidents", "cost", "cost_lost"),
            *(f"node_hours {name}" for name in names),
        )
    )
    for one in ledger.periods:
        spent = {told.name: told.time_ns for told in one.categories}
        writer.writerow(
            (
                *(_plain(_name(one)), _moment(one.begin_ns), _moment(one.end_ns), one.jobs),
                *(_hours(one.node_ns), _hours(one.device_ns)),
                *(f"{ratio:.6f}" for ratio in (one.ettr_time, one.ettr_work, one.ettr_devices)),
                *(one.failures, one.incidents, f"{one.cost:.2f}", f"{one.cost_lost:.2f}"),
                *(_hours(spent.get(name, 0)) for name in names),
            )
        )
    return file.getvalue()


def _plain(name: str) -> str:
    return f"'{name}" if name.startswith(_FORMULA) else name


def _hours(ns: int) -> str:
    return f"{ns / _NS_PER_HOUR:.6f}"


def _moment(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns / 1e9, UTC):%Y-%m-%dT%H:%M:%SZ}"
