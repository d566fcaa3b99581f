"""The mapping of old tests to new ones: none is lost unseen."""

from pathlib import Path

import pytest

import house
from test_mapping import MoveRow, collect_tests, map_tests, read_moves

_TEXT = """
from hypothesis.stateful import RuleBasedStateMachine

def helper(): ...
def test_one(): ...
async def test_two(): ...
class TestGroup:
    def test_in_it(self): ...
TestMachine = Machine.TestCase
"""


def test_tests_are_collected_from_their_syntax(tmp_path: Path) -> None:
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "test_a.py").write_text(_TEXT)
    (tmp_path / "tests" / "unit" / "world.py").write_text("def test_no_test_file(): ...\n")
    names = ("test_one", "test_two", "TestGroup::test_in_it", "TestMachine")
    assert collect_tests(tmp_path) == {f"tests/unit/test_a.py::{name}" for name in names}


def test_a_row_for_a_test_or_for_its_file_says_where_it_is() -> None:
    rows = [
        MoveRow("t/a.py::test_x", "t/b.py::test_y", "renamed"),
        MoveRow("t/c.py", "t/d.py", "moved"),
        MoveRow("t/e.py::test_gone", "", "its mechanism is gone"),
    ]
    old = {"t/a.py::test_x", "t/c.py::test_z", "t/e.py::test_gone", "t/f.py::test_same"}
    new = {"t/b.py::test_y", "t/d.py::test_z", "t/f.py::test_same", "t/f.py::test_new"}
    mapping = map_tests(old, new, rows, [])
    assert mapping.moved == {
        "t/a.py::test_x": "t/b.py::test_y",
        "t/c.py::test_z": "t/d.py::test_z",
    }
    assert mapping.removed == {"t/e.py::test_gone": "its mechanism is gone"}
    assert mapping.unchanged == ["t/f.py::test_same"]
    assert mapping.added == ["t/f.py::test_new"]
    assert mapping.lost == []


def test_rows_of_two_changes_are_followed_one_after_the_other() -> None:
    rows = [
        MoveRow("t/a.py", "t/b.py", "moved"),
        MoveRow("t/b.py::test_x", "t/c.py::test_x", "moved again"),
    ]
    mapping = map_tests({"t/a.py::test_x"}, {"t/c.py::test_x"}, rows, [])
    assert mapping.moved == {"t/a.py::test_x": "t/c.py::test_x"}


def test_without_a_row_a_rename_or_a_single_namesake_is_found() -> None:
    old = {"t/a.py::test_x", "t/b.py::test_y", "t/b.py::test_z"}
    new = {"u/a.py::test_x", "u/b.py::test_y", "u/c.py::test_z", "u/d.py::test_z"}
    mapping = map_tests(old, new, [], [MoveRow("t/a.py", "u/a.py", "renamed")])
    assert mapping.moved == {
        "t/a.py::test_x": "u/a.py::test_x",
        "t/b.py::test_y": "u/b.py::test_y",
    }
    assert mapping.lost == ["t/b.py::test_z"], "two namesakes tell nothing"


def test_a_row_that_leads_nowhere_leaves_the_test_lost() -> None:
    rows = [MoveRow("t/a.py::test_x", "t/b.py::test_missing", "renamed")]
    mapping = map_tests({"t/a.py::test_x"}, {"t/b.py::test_other"}, rows, [])
    assert mapping.lost == ["t/a.py::test_x"]
    assert list(house.mapping_lines(mapping)) == [
        "t/a.py::test_x is LOST: give it a line in tools/test_moves/*.csv, or bring it back",
        "0 tests are unchanged, 0 moved, 0 removed with a reason, 1 lost; 1 are new.",
    ]


def test_a_test_is_removed_only_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "core.csv").write_text('old,new,reason\nt/a.py,t/b.py,\nt/c.py,,"one, two"\n')
    assert read_moves(tmp_path) == [
        MoveRow("t/a.py", "t/b.py", ""),
        MoveRow("t/c.py", "", "one, two"),
    ]
    (tmp_path / "jobs.csv").write_text("old,new,reason\nt/d.py,,\n")
    with pytest.raises(ValueError, match=r"jobs.csv:2: say what is old, and new or a reason"):
        read_moves(tmp_path)
