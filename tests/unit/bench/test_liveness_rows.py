"""Rows of liveness in docs/benchmarks.md: each is a fault that bench liveness plays."""

import re
from pathlib import Path

from liveness import real_faults, virtual_faults

_PAGE = Path(__file__).resolve().parents[3] / "docs/benchmarks.md"
_HEADING = "## Faults of liveness, and who is harmed"
_ROW = re.compile(r"^\| (?P<what>[^|]+?) \| (?P<how>processes|virtual time) \|", re.MULTILINE)


def test_the_page_has_no_row_of_a_fault_that_is_not_played() -> None:
    section = _PAGE.read_text(encoding="utf-8").partition(_HEADING)[2].partition("\n## ")[0]
    played = {("virtual time", case.what) for case in virtual_faults.CASES.values()}
    played |= {("processes", case.what) for case in real_faults.CASES.values()}
    told = {(row["how"], row["what"]) for row in _ROW.finditer(section)}
    assert len(told) > 20
    assert told - played == set()
