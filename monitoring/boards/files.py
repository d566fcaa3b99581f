"""Files of the boards: what `monitoring/grafana/dashboards` should have."""

import json
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from boards.board import Board
from boards.cost import COST
from boards.fleet import FLEET
from boards.job import JOB
from boards.node import NODE

BOARDS = (FLEET, JOB, NODE, COST)
FOLDER = Path(__file__).parents[1] / "grafana" / "dashboards"


def written(board: Board) -> str:
    """Return the JSON of a board."""
    made = json.loads(JSONEncoder(sort_keys=True, indent=1).encode(board.built()))
    # What people have set: newer Grafana has no such field.
    made.pop("style", None)
    return json.dumps(_accepted(made), indent=1, sort_keys=True) + "\n"


def _accepted(value: object) -> object:
    """Leave out what is an error in Grafana's own types: nulls, and what its variables have not."""
    if isinstance(value, list):
        return [_accepted(one) for one in value]
    if not isinstance(value, dict):
        return value
    # The lowest threshold begins at null.
    kept = {"value"} if "color" in value else set()
    left_out = {"id", "auto", "auto_count", "auto_min"} if "skipUrlSync" in value else set()
    return {
        name: _accepted(one)
        for name, one in value.items()
        if name not in left_out and (one is not None or name in kept)
    }


def files() -> list[tuple[Path, str]]:
    """Return each file and its text."""
    return [(FOLDER / f"{board.uid}.json", written(board)) for board in BOARDS]
