"""Stages of an incident: a bar for each, from where the one before it ended. Pure."""

from everstep_cli.report.account import IncidentAccount
from everstep_cli.report.amounts import span
from everstep_cli.report.bars import stage_fill
from everstep_cli.report.svg import Picture, fitting
from everstep_controller.core.accounting.categories import Category

_WIDTH, _LEFT, _RIGHT, _ROW, _HEAD = 960, 330, 90, 24, 20
_MEANINGS = {category.value: category.meaning for category in Category}


def meaning_of(stage: str) -> str:
    """Return what a stage is, in a few words; "" for one of a newer controller."""
    return _MEANINGS.get(stage, "")


def stage_waterfall(incident: IncidentAccount) -> str:
    """Return the picture: from the fault at the left to the first new step at the right."""
    stages = [one for one in incident.stages if one.seconds > 0]
    whole = sum(one.seconds for one in stages) or 1.0
    plot = _WIDTH - _LEFT - _RIGHT
    height = _HEAD + len(stages) * _ROW + 6
    made = Picture(_WIDTH, height, f"Seconds of {incident.id} by stage, {span(whole)} in all")
    made.text(_LEFT, 12, "the fault", kind="small")
    made.text(_LEFT + plot, 12, f"{span(whole)}: training again", "end", kind="small")
    for x in (_LEFT, _LEFT + plot):
        made.line(x, _HEAD - 4, x, height - 4)
    spent = 0.0
    for place, one in enumerate(stages):
        y = _HEAD + place * _ROW
        begin = _LEFT + plot * spent / whole
        width = plot * one.seconds / whole
        name = ": ".join(filter(None, (one.name, meaning_of(one.name))))
        told = f"{name}: {span(one.seconds)}"
        made.text(_LEFT - 8, y + 15, fitting(name, _LEFT - 12), "end")
        made.area(begin, y + 3, max(width, 0.75), _ROW - 8, stage_fill(one.name), told)
        made.text(_WIDTH - _RIGHT + 8, y + 15, span(one.seconds))
        spent += one.seconds
        if place + 1 < len(stages):
            end = _LEFT + plot * spent / whole
            made.line(end, y + 3, end, y + _ROW + _ROW - 5)
    return made.drawn()
