"""The list of metrics is what the collectors make, and has all that boards and alerts ask for."""

import re

from generate_metrics import REFERENCE, of_agent, of_controller, reference

from boards.files import BOARDS, FOLDER

_NAMES = re.compile(r"\beverstep_[a-z0-9_]+")
_RULES = FOLDER.parents[1] / "prometheus"


def test_regenerating_the_list_changes_nothing() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == reference(), "run `make reference`"


def test_every_series_says_what_it_is() -> None:
    series = [*of_controller(), *of_agent()]
    assert len(series) > 180
    assert [one.name for one in series if not one.text.endswith((".", ")"))] == []


def test_boards_rules_and_alerts_ask_for_listed_series_alone() -> None:
    queries = [query.expr for board in BOARDS for p in board.panels() for query in p.queries]
    rules = [path.read_text(encoding="utf-8") for path in _RULES.glob("*.yml")]
    asked = set(_NAMES.findall("\n".join([*queries, *rules])))
    assert asked - _listed() == set()


def _listed() -> set[str]:
    names = {one.name for one in (*of_controller(), *of_agent())}
    buckets = {f"{name}_{part}" for name in names for part in ("bucket", "sum", "count")}
    return names | buckets
