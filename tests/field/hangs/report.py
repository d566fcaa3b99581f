"""Report of runs of hangs: how soon each kind was seen, and how soon each script trained on."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from field.hangs.kinds import SCRIPTS, Case, cases
from field.hangs.runs import BOUND_S, HangRun

# What people and the judge say of a rank that hangs; one that has died is seen by its exit.
_SEEN = ("JobStalled", "HangJudged")
_SEEN_S = 5.0
_LATE_SHARE = 0.05


def figures(found: Sequence[HangRun]) -> list[dict[str, Any]]:
    """Return rows as benchmarks print them with --json, and whether each misses its target."""
    rows = []
    for name, value, unit, target in _figures(found):
        missed = target is not None and value > target
        row = {"name": name, "value": round(value, 2), "unit": unit}
        rows.append({**row, "target": target, "missed": missed})
    return rows


def text(found: Sequence[HangRun]) -> str:
    """Return the table for a terminal."""
    rows = [("measurement", "value", "unit", "at most"), *_cells(found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def markdown(found: Sequence[HangRun]) -> str:
    """Return the table for a page."""
    head = ["| measurement | value | unit | at most |", "|---|---|---|---|"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in _cells(found))])


def _cells(found: Sequence[HangRun]) -> Iterator[tuple[str, str, str, str]]:
    for one in figures(found):
        target = "" if one["target"] is None else f"{one['target']:g}"
        missed = " (missed)" if one["missed"] else ""
        yield one["name"], f"{one['value']:g}{missed}", one["unit"], target


def _figures(found: Sequence[HangRun]) -> Iterator[tuple[str, float, str, float | None]]:
    yield "load average before a run, p50", _median([one.load for one in found]), "processes", None
    for script in SCRIPTS:
        if failed := [bool(one.failed) for one in found if one.script == script.name]:
            yield f"{script.name}, runs", failed.count(False), "runs", None
            yield f"{script.name}, runs that say nothing", failed.count(True), "runs", None
    for case in cases():
        of_it = [one for one in found if one.name == case.name and not one.failed]
        if of_it and case.kind.how:
            yield from _of_hangs(case, of_it)
        elif of_it:
            count = f"{case.name}: restarts in {len(of_it)} runs"
            yield count, sum(one.restarts for one in of_it), "restarts", 0.0


def _of_hangs(
    case: Case, found: Sequence[HangRun]
) -> Iterator[tuple[str, float, str, float | None]]:
    if case.kind.how != "dead":
        told = [min(one.marks.get(mark, BOUND_S) for mark in _SEEN) for one in found]
        yield from _of_times(f"{case.name} → detected", told, _SEEN_S)
    stepped = [BOUND_S if one.next_step_s is None else one.next_step_s for one in found]
    yield from _of_times(f"{case.name} → new step", stepped, case.kind.new_step_s)


def _of_times(
    name: str, seconds: Sequence[float], target_s: float
) -> Iterator[tuple[str, float, str, float | None]]:
    yield f"{name}, p50", _median(seconds), "s", target_s
    yield f"{name}, most", max(seconds), "s", None
    late = sum(one > target_s for one in seconds) / len(seconds)
    yield f"{name}: share of {len(seconds)} later than {target_s:g} s", late, "", _LATE_SHARE


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0
