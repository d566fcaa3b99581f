"""Test mapping: where each test of an older tree is in this one, so that none is lost unseen.

A test is known by its id without parameters. One that is not there any more under its old id is
looked for in this order: the rows of tools/test_moves/*.csv, for the test or for its file; git's
renames; a new test of the same name, when there is just one.
"""

import ast
import csv
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# A row may point to another row's test, where two changes moved it one after the other.
_ROWS_MAX = 8


@dataclass(frozen=True)
class MoveRow:
    """Row of a table of moves: a test, or a file of tests, that was moved or removed."""

    old: str
    new: str
    reason: str


@dataclass
class TestMapping:
    """Mapping of the old tests to where they are now."""

    __test__ = False

    unchanged: list[str] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)
    # With the reason of each.
    removed: dict[str, str] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)


def collect_tests(root: Path) -> set[str]:
    """Return the ids of all tests below a folder, from their syntax alone."""
    return {
        f"{path.relative_to(root).as_posix()}::{name}"
        for path in (root / "tests").rglob("test_*.py")
        for name in _tests_of(ast.parse(path.read_text()).body)
    }


def _tests_of(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("test"):
                yield node.name
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from (f"{node.name}::{name}" for name in _tests_of(node.body))
        elif isinstance(node, ast.Assign):
            # A state machine of Hypothesis: TestSlots = Slots.TestCase.
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            yield from (name for name in names if name.startswith("Test"))


def read_moves(folder: Path) -> list[MoveRow]:
    """Read every table of moves; raises ValueError for a row that says too little."""
    rows = []
    for table in sorted(folder.glob("*.csv")):
        with table.open(newline="") as lines:
            for number, row in enumerate(csv.DictReader(lines), 2):
                move = MoveRow(*((row.get(key) or "").strip() for key in ("old", "new", "reason")))
                if not move.old or not (move.new or move.reason):
                    raise ValueError(f"{table.name}:{number}: say what is old, and new or a reason")
                rows.append(move)
    return rows


def renamed_files(root: Path, revision: str) -> list[MoveRow]:
    """Return the files of tests that git takes for renamed since a revision."""
    told = subprocess.run(
        ["git", "diff", "--name-status", "--find-renames=50%", revision, "--", "tests"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lines = (line.split("\t") for line in told.splitlines() if line.startswith("R"))
    return [MoveRow(old, new, "renamed") for _, old, new in lines]


def map_tests(
    old: set[str], new: set[str], rows: list[MoveRow], renames: list[MoveRow]
) -> TestMapping:
    """Say of each old test where it is now."""
    mapping = TestMapping(unchanged=sorted(old & new))
    by_name = defaultdict(list)
    for test in sorted(new - old):
        by_name[_name(test)].append(test)
    for test in sorted(old - new):
        found = _by_rows(test, new, rows) or _by_rows(test, new, renames)
        namesakes = by_name[_name(test)]
        if found is None and len(namesakes) == 1:
            found = MoveRow(test, namesakes[0], "")
        if found is None:
            mapping.lost.append(test)
        elif found.new:
            mapping.moved[test] = found.new
        else:
            mapping.removed[test] = found.reason
    mapping.added = sorted(new - old - set(mapping.moved.values()))
    return mapping


def _name(test: str) -> str:
    return test.partition("::")[2]


def _by_rows(test: str, new: set[str], rows: list[MoveRow]) -> MoveRow | None:
    """Follow rows from a test to one that exists, or to a removal; None when they lead nowhere."""
    by_old = {row.old: row for row in rows}
    wanted = test
    for _ in range(_ROWS_MAX):
        file, _, name = wanted.partition("::")
        if (row := by_old.get(wanted)) is not None:
            wanted = row.new
        elif (row := by_old.get(file)) is not None:
            wanted = f"{row.new}::{name}" if row.new else ""
        else:
            return None
        if not wanted or wanted in new:
            return MoveRow(test, wanted, row.reason)
    return None
