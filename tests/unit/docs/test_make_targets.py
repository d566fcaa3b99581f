"""The targets of the Makefile that run tests stand in the table of CONTRIBUTING.md."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_TARGET = re.compile(r"^(?P<name>[a-z-]+):.*##", re.MULTILINE)
_ROW = re.compile(r"^\| `make (?P<name>[a-z-]+)", re.MULTILINE)


def test_contributors_find_each_target_that_tests_in_the_table() -> None:
    targets = _TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8"))
    testing = {name for name in targets if re.match("check$|test|field", name)}
    assert {"check", "test", "field"} <= testing
    told = set(_ROW.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    assert told == testing
