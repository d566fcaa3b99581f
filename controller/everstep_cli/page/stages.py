"""Stages of an incident: a bar for each, from where the one before it ended. Pure."""

from everstep_cli.report.account import IncidentAccount, Slice
from everstep_cli.report.amounts import span
from everstep_cli.report.bars import stage_fill
from everstep_cli.report.svg import Picture, fitting
from everstep_controller.core.accounting.categories import Category

_WIDTH, _LEFT, _RIGHT, _ROW, _HEAD = 960, 330, 90, 24, 20
_MEANINGS = {category.value: category.meaning for category in Category}
_ORDER = {category.value: place for place, category in enumerate(Category)}
# Time of steps from before the fault, which do not count any more.
_LOST = "lost."


def meaning_of(stage: str) -> str:
    """Return what a stage is, in a few words; "" for one of a newer controller."""
    return _MEANINGS.get(stage, "")


def stages_of(incident: IncidentAccount) -> list[Slice]:
    """Return what an incident cost in the order of time: lost steps, then from the fault on."""
    costly = (one for one in incident.stages if one.seconds > 0)
    return sorted(
        costly,
        key=lambda one: (not one.name.startswith(_LOST), _ORDER.get(one.name, len(_ORDER))),
    )


def stage_waterfall(incident: IncidentAccount) -> str:
    """Return the picture: a bar for each stage, from where the one before it ended."""
    stages = stages_of(incident)
    whole = sum(one.seconds for one in stages) or 1.0
    plot = _WIDTH - _LEFT - _RIGHT
    height = _HEAD + len(stages) * _ROW + 6
    made = Picture(_WIDTH, height, f"Seconds of {incident.id} by stage, {span(whole)} in all")

    def x_of(seconds: float) -> float:
        return _LEFT + plot * seconds / whole

    fault = x_of(sum(one.seconds for one in stages if one.name.startswith(_LOST)))
    made.text(fault, 12, "the fault", "end" if fault > _LEFT + plot * 0.6 else "start", "small")
    made.text(_WIDTH - _RIGHT + 8, 12, span(whole))
    for x in (_LEFT, fault, _LEFT + plot):
        made.line(x, _HEAD - 4, x, height - 4)
    spent = 0.0
    for place, one in enumerate(stages):
        y, begin = _HEAD + place * _ROW, x_of(spent)
        spent += one.seconds
        name = ": ".join(filter(None, (one.name, meaning_of(one.name))))
        made.text(_LEFT - 8, y + 15, fitting(name, _LEFT - 12), "end")
        told, width = f"{name}: {span(one.seconds)}", max(x_of(spent) - begin, 0.75)
        made.area(begin, y + 3, width, _ROW - 8, stage_fill(one.name), told)
        made.text(_WIDTH - _RIGHT + 8, y + 15, span(one.seconds))
        if place + 1 < len(stages):
            made.line(x_of(spent), y + 3, x_of(spent), y + _ROW + _ROW - 5)
    return made.drawn()
