"""Claims: the words of each stand in their page, and each number of the README has a claim."""

import json
from pathlib import Path

import pytest

import claims
from claims import Claim, Measurement, Setting, Told

_MEASUREMENTS, _CLAIMS = claims.read_claims()
_README = (claims.ROOT / "README.md").read_text()


@pytest.mark.parametrize("claim", _CLAIMS, ids=[one.says[:40] for one in _CLAIMS])
def test_the_words_of_a_claim_stand_in_its_page_and_are_measured(claim: Claim) -> None:
    assert claim.found((claims.ROOT / claim.page).read_text()), (
        f"{claim.page} does not say: {claim.says}; correct tools/claims/claims.toml"
    )
    assert claim.by in _MEASUREMENTS


def test_each_number_with_a_unit_in_the_readme_has_a_claim() -> None:
    of_it = [one for one in _CLAIMS if one.page == "README.md"]
    assert claims.unclaimed(_README, of_it) == []


def test_a_number_without_a_claim_is_found() -> None:
    page = """# A page
It takes 12 ms, and
3 minutes where it waits.
```
example    99 s
```
| number | is | measured |
|---|---|---|
| seconds lost | in all | process 0.4, node 1.3 |

20 nodes are no promise.
"""
    assert claims.unclaimed(page, []) == ["12 ms", "3 minutes", "0.4", "1.3"]
    of_it = [
        Claim("", "process {}, node {}", ""),
        Claim("", "It takes {} ms, and {} minutes", ""),
    ]
    assert claims.unclaimed(page, of_it) == []


def test_the_page_is_as_the_tool_writes_it() -> None:
    written = claims.page(_MEASUREMENTS, _CLAIMS, claims.read_values())
    assert claims.PAGE.read_text() == written, "run 'make reference'"


def test_every_measurement_shows_a_claim() -> None:
    assert {one.by for one in _CLAIMS} == set(_MEASUREMENTS)


def test_rows_are_read_from_json_from_tables_and_by_path_from_other_json() -> None:
    rows = [{"name": "stall", "value": 0.5, "unit": "ms"}]
    assert claims.rows_of("round 1 of 3\n" + json.dumps(rows, indent=1)) == {"stall": (0.5, "ms")}
    table = (
        "| what | value | unit |\n| ---- | ----- | ---- |\n| stall | 0.523 | ms |\n| x | | s |\n"
    )
    assert claims.rows_of("WARNING: [a]\n" + table) == {"stall": (0.523, "ms")}
    other = '{"incidents": [{"total_s": 0.4, "cause": "x"}], "passed": true}'
    assert claims.rows_of(other) == {"incidents.0.total_s": (0.4, ""), "passed": (1.0, "")}


def test_what_is_kept_is_shown_with_its_day_commit_and_load(tmp_path: Path) -> None:
    (tmp_path / "claims.toml").write_text(
        '[measurement.slots]\ncommand = "bench slots"\nsetting = "as shipped"\n'
        '[[claim]]\npage = "README.md"\nsays = "Everstep"\nby = "slots"\nrows = ["stall"]\n'
    )
    told = Told("2026-11-28", "89b79d8a", 0.4, True, {"stall": (0.523, "ms"), "load": (1.0, "")})
    claims.keep("slots", told, tmp_path)
    measurements, made = claims.read_claims(tmp_path)
    values = claims.read_values(tmp_path)
    assert values["slots"].rows == {"stall": (0.523, "ms")}, "only what a claim names is kept"
    page = claims.page(measurements, made, values)
    assert "| as shipped | 0.523 ms | 2026-11-28, 89b79d8a, 0.4 |" in page


def test_words_that_no_page_has_are_no_claim() -> None:
    measurement = Measurement("a", "true", Setting.COUNTED)
    with pytest.raises(ValueError, match="does not say"):
        claims.page({"a": measurement}, [Claim("README.md", "nobody said this", "a")], {})
