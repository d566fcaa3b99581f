"""Sheet of a report: its incidents with their seconds by stage, for spreadsheets. Pure."""

import csv
import io
from collections.abc import Iterable

from everstep_cli.report.account import IncidentAccount
from everstep_cli.report.amounts import moment

# What a spreadsheet would take for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def incidents_csv(incidents: Iterable[IncidentAccount]) -> str:
    """Return a row of each incident; times are in UTC, costs in seconds."""
    shown = list(incidents)
    stages = list(dict.fromkeys(stage.name for one in shown for stage in one.stages))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    head = ("incident", "began", "over", "cause", "planned", "node", "steps_lost", "seconds")
    writer.writerow((*head, *(f"seconds {name}" for name in stages), "what happened"))
    for one in shown:
        spent = {stage.name: stage.seconds for stage in one.stages}
        over = moment(one.over_ns) if one.over_ns else ""
        words = (one.id, moment(one.onset_ns), over, one.cause)
        writer.writerow(
            (
                *map(_plain, words),
                *(int(one.planned), _plain(one.node), one.steps_lost, f"{one.seconds:.3f}"),
                *(f"{spent.get(name, 0):.3f}" for name in stages),
                _plain(one.sentence),
            )
        )
    return file.getvalue()


def _plain(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
