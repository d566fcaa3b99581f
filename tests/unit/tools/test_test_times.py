"""What `make test` runs of all tests: the rule, its table, and whether it finds the faults."""

import re
from pathlib import Path

import pytest

import mutants
import test_times as times

_REPORT = """<testsuites><testsuite>
<testcase classname="tests.integration.test_a" name="test_quick" time="0.5"/>
<testcase classname="tests.integration.test_a" name="test_many[1]" time="1.0"/>
<testcase classname="tests.integration.test_a" name="test_many[2]" time="2.0"/>
<testcase classname="tests.integration.test_a" name="test_many[3]" time="1.5"/>
<testcase classname="tests.integration.test_a" name="test_many[4]" time="1.5"/>
<testcase classname="tests.integration.test_a" name="test_long@group" time="9.0"/>
<testcase classname="tests.integration.test_a" name="test_story" time="9.0"/>
</testsuite></testsuites>"""
_A = "tests/integration/test_a.py::"


@pytest.fixture
def measured(tmp_path: Path) -> dict[str, list[float]]:
    (tmp_path / "report.xml").write_text(_REPORT)
    return times.read_times([tmp_path / "report.xml"])


def test_a_function_keeps_its_first_cases_that_fit_and_a_story_all(
    measured: dict[str, list[float]],
) -> None:
    table = times.choose(measured, [f"{_A}test_story"], 3.0)
    assert table.kept == {f"{_A}test_long": 0, f"{_A}test_many": 2}
    kept = {name: table.cases(f"{_A}{name}", 4) for name in ("test_quick", "test_many")}
    assert kept == {"test_quick": 4, "test_many": 2}
    assert table.cases(f"{_A}test_story", 1) == 1
    assert table.seconds == {f"{_A}test_long": 9, f"{_A}test_story": 9}
    assert table.files() == ["tests/integration/test_a.py"]
    assert times.summary(measured, table).startswith("make test: 4 of 7 cases, 12 of 24 s")


def test_the_table_is_read_as_it_was_written(
    measured: dict[str, list[float]], tmp_path: Path
) -> None:
    table = times.choose(measured, [f"{_A}test_story"], 3.0)
    (tmp_path / "thorough.toml").write_text(times.text_of(table))
    assert times.read_table(tmp_path / "thorough.toml") == table


def test_every_function_of_the_table_is_there() -> None:
    table = times.read_table()
    gone = [
        one
        for one in (*table.stories, *table.kept, *table.seconds)
        if not _is_there(*one.split("::"))
    ]
    assert gone == []


def _is_there(file: str, function: str) -> bool:
    path = times.ROOT / file
    return path.exists() and re.search(rf"def {function}\(", path.read_text()) is not None


def test_make_test_alone_runs_a_test_of_nearly_every_mutant() -> None:
    table = times.read_table()
    left_out = {one.partition("::")[2] for one, cases in table.kept.items() if not cases}
    known = mutants.read_mutants(times.ROOT / "tools" / "mutants")
    missed = [
        mutant.id
        for mutant in known
        if all(
            test.partition("::")[2].partition("[")[0] in left_out
            for test in mutant.tests_after or mutant.tests
        )
    ]
    print(f"{len(known) - len(missed)} of {len(known)}; not {missed}")
    assert len(missed) <= 0.05 * len(known)
