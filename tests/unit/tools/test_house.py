"""The script that prints the table of the house, and fails where a goal is missed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import house
from source_tree import read_tree
from unit.tools.small_tree import small_tree

SCRIPT = Path(house.__file__)
_CORE = "controller/everstep_controller/core"
_RECORD = "from dataclasses import dataclass\n@dataclass\nclass JobRecord:\n    name: str\n"
_SETTINGS = "".join(
    f"    {name}_ns: int = duration({value}.0)\n" for value, name in enumerate("abcdefg")
)
_COPY = "".join(f"    {name}_s: float = {value}.0\n" for value, name in enumerate("abcdefg"))


def _good_tree(root: Path) -> None:
    """Write a tree in which every fact stands once, the settings with a copy that agrees."""
    files = {
        f"{_CORE}/model/job.py": _RECORD,
        f"{_CORE}/model/state.py": "class State:\n    nodes: dict\n    hearing: int = 0\n",
        f"{_CORE}/model/settings.py": f"class Settings:\n{_SETTINGS}",
        "controller/everstep_controller/config.py": f"class Config:\n{_COPY}",
    }
    small_tree(root, files)


def _sentences(root: Path) -> list[str]:
    return list(house.missed_goals(house.House(read_tree(root))))


def test_a_tree_that_says_every_fact_once_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _good_tree(tmp_path)
    assert house.main(["--check", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "Every fact stands once.\n"


def test_what_the_index_computes_is_no_field_of_the_state(tmp_path: Path) -> None:
    _good_tree(tmp_path)
    text = "class State:\n    nodes: dict\n    silent: list\n    heard_total: int = 0\n"
    small_tree(tmp_path, {f"{_CORE}/model/state.py": text})
    assert [sentence.split(" can ")[0] for sentence in _sentences(tmp_path)] == [
        "State.silent",
        "State.heard_total",
    ]


def test_a_setting_has_one_default_in_whatever_unit_a_copy_keeps_it(tmp_path: Path) -> None:
    _good_tree(tmp_path)
    other = _COPY.replace("d_s: float = 3.0", "d_s: float = setting(2 * 2)")
    small_tree(tmp_path, {"controller/everstep_controller/config.py": f"class Config:\n{other}"})
    assert _sentences(tmp_path) == [
        "the default of d is 3 in Settings, 4 in Config: there is one class of settings, Settings"
    ]


def test_a_class_with_few_of_the_same_names_is_no_copy(tmp_path: Path) -> None:
    _good_tree(tmp_path)
    few = "class Config:\n    a_s: float = 9.0\n    b_s: float = 9.0\n"
    small_tree(tmp_path, {"controller/everstep_controller/config.py": few})
    assert _sentences(tmp_path) == []


def test_the_table_has_a_column_for_another_revision(tmp_path: Path) -> None:
    """In a process of its own, and in a repository of its own."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    _good_tree(tmp_path)
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "one"]):
        subprocess.run([*git, *command], check=True)
    small_tree(tmp_path, {"common/everstep_common/clock.py": ""})
    shown = subprocess.run(
        [sys.executable, SCRIPT, "--static", "--json", "--against", "HEAD", "--root", tmp_path],
        capture_output=True,
        text=True,
        check=True,
    )
    table = json.loads(shown.stdout)
    assert table["HEAD"]["source files"] == "4"
    assert table["this tree"]["source files"] == "5"
    assert table["HEAD"]["fields of the job's record"] == "1"


def test_the_table_is_markdown_with_the_goals() -> None:
    row = house.Row("files", "all of them", "≤ 3", lambda _: "")
    assert list(house.table_lines([row], {"before": ["9"], "this tree": ["2"]})) == [
        "| | before | this tree | goal |",
        "|---|---|---|---|",
        "| files | 9 | 2 | ≤ 3 |",
    ]
