"""Incidents and hours of the history, in which the newest are those that the state tells. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from everstep_cli.report.account import IncidentAccount, Period, Slice, in_order
from everstep_controller.core.accounting.categories import Category
from everstep_proto.generated import admin_pb2

_NS = 1_000_000_000
_MEANINGS: Mapping[str, str] = {one.value: one.meaning for one in Category}
# A picture of more columns than this shows none of them.
_COLUMNS_MAX = 120


def incidents_of(
    rows: Iterable[admin_pb2.HistoryRow],
    current: Iterable[admin_pb2.Incident],
    job: str = "",
    *,
    by_nodes: bool,
) -> list[IncidentAccount]:
    """Return the incidents of the history and of the state, oldest first.

    Of a ``job`` by its id or its name, or of all; ``by_nodes``: their costs are in time of nodes.
    """
    known: dict[str, IncidentAccount] = {}
    for row in rows:
        told: dict[str, Any] = json.loads(row.told)
        if job in ("", told["job"], told.get("name")):
            known[row.key] = _written(row, told, by_nodes=by_nodes)
    for one in current:
        known[one.incident] = _current(one, by_nodes=by_nodes)
    return sorted(known.values(), key=lambda one: (one.onset_ns, one.id))


def _written(
    row: admin_pb2.HistoryRow, told: Mapping[str, Any], *, by_nodes: bool
) -> IncidentAccount:
    costs: Mapping[str, int] = told.get("node_costs" if by_nodes else "costs", {})
    restored: int | None = told.get("step_restored")
    return IncidentAccount(
        id=row.key,
        onset_ns=row.begin_ns,
        over_ns=told.get("over_ns", 0),
        cause=told["cause"],
        node=told.get("node", ""),
        sentence=told["message"],
        verdict=told.get("verdict", ""),
        plan=told.get("plan", ""),
        stages=in_order(Slice(name, ns / _NS) for name, ns in costs.items()),
        steps_lost=0 if restored is None else max(0, (told.get("step_before") or 0) - restored),
    )


def _current(one: admin_pb2.Incident, *, by_nodes: bool) -> IncidentAccount:
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
        stages=in_order(
            Slice(cost.name, cost.time_ns / _NS)
            for cost in (one.node_costs if by_nodes else one.costs)
        ),
        steps_lost=max(0, lost),
    )


# --- hours of a job ------------------------------------------------------------------------------


def periods_of_hours(
    rows: Sequence[admin_pb2.HistoryRow], ledger: admin_pb2.Ledger
) -> list[Period]:
    """Return what a job's time went to hour by hour, or in as many hours as a column needs.

    What the history has not yet is what the ledger has more than its last row. Without any row
    there are none.
    """
    if not rows:
        return []
    end_ns = ledger.begin_ns + ledger.wall_ns
    sums = [(row.at_ns, _totals(row)) for row in rows if ledger.begin_ns < row.at_ns < end_ns]
    together = -(-len(sums) // _COLUMNS_MAX) or 1
    shown = sums[together - 1 :: together]
    whole = {one.name: one.time_ns for one in ledger.categories}
    return list(_differences(ledger.begin_ns, [*shown, (end_ns, whole)]))


def _totals(row: admin_pb2.HistoryRow) -> dict[str, int]:
    totals: dict[str, int] = json.loads(row.told)["totals"]
    return totals


def _differences(begin_ns: int, sums: Iterable[tuple[int, Mapping[str, int]]]) -> Iterator[Period]:
    before: Mapping[str, int] = {}
    for until_ns, totals in sums:
        gained = {name: ns - before.get(name, 0) for name, ns in totals.items()}
        gained |= {name: -ns for name, ns in before.items() if name not in totals}
        slices = [
            Slice(name, ns / _NS, _MEANINGS.get(name, "")) for name, ns in gained.items() if ns
        ]
        yield Period(begin_ns, until_ns, slices)
        begin_ns, before = until_ns, totals
