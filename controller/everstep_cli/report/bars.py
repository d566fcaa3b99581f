"""Bars: what each incident took by stage, and what causes and nodes cost. Pure."""

from collections.abc import Sequence

from everstep_cli.report.account import STAGES, IncidentAccount
from everstep_cli.report.amounts import span
from everstep_cli.report.svg import FILLS, Fill, Picture, fitting
from everstep_cli.report.svg import STAGES as COLOURS
from everstep_controller.core.accounting.categories import Group

_WIDTH, _ROW = 960, 22
_PATTERNS = ("", "M0 0L8 8", "M0 8L8 0", "M4 0v8", "M0 4h8", "M0 4h3", "M4 0v3")
BARS_MAX = 30


def stage_fill(name: str) -> Fill:
    """Return how a stage of an incident is drawn."""
    place = STAGES.index(name) if name in STAGES else len(STAGES)
    return Fill(COLOURS[place % len(COLOURS)], _PATTERNS[place % len(_PATTERNS)])


def incident_bars(incidents: Sequence[IncidentAccount]) -> str:
    """Return a bar of stages for each of the dearest incidents, in the order of time."""
    dearest = sorted(incidents, key=lambda one: -one.seconds)[:BARS_MAX]
    shown = sorted(dearest, key=lambda one: one.onset_ns)
    left, right = 200, 90
    longest = max((one.seconds for one in shown), default=0.0) or 1.0
    made = Picture(_WIDTH, len(shown) * _ROW + 4, "Seconds of each incident by stage")
    for place, one in enumerate(shown):
        y, x = place * _ROW, float(left)
        made.text(left - 8, y + 15, fitting(f"{one.id} {one.cause}", left - 12), "end")
        for stage in one.stages:
            width = (_WIDTH - left - right) * max(0.0, stage.seconds) / longest
            told = f"{stage.name}: {span(stage.seconds)}"
            made.area(x, y + 3, width, _ROW - 8, stage_fill(stage.name), told)
            x += width
        made.text(x + 6, y + 15, span(one.seconds))
    return made.drawn()


def cost_bars(title: str, costs: Sequence[tuple[str, int, float]]) -> str:
    """Return a bar for each name: what it cost, and how often it was."""
    shown = list(costs)[:BARS_MAX]
    left, right = 220, 200
    most = max((seconds for _, _, seconds in shown), default=0.0) or 1.0
    made = Picture(_WIDTH, len(shown) * _ROW + 4, title)
    for place, (name, times, seconds) in enumerate(shown):
        y = place * _ROW
        width = (_WIDTH - left - right) * max(0.0, seconds) / most
        made.text(left - 8, y + 15, fitting(name, left - 12), "end")
        made.area(left, y + 3, max(width, 0.75), _ROW - 8, FILLS[Group.INCIDENT], name)
        often = "once" if times == 1 else f"{times} times"
        made.text(left + width + 6, y + 15, f"{span(seconds)}, {often}")
    return made.drawn()
