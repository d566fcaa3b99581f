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


def _good_tree(root: Path) -> None:
    """Write a tree that misses no goal."""
    lines = "x = 1\n" * 150
    core = {f"{_CORE}/jobs/m{number}.py": lines for number in range(44)}
    patches = {
        f"docs/extending/{word}.patch": "diff --git a/agent/a.py b/agent/a.py\n"
        for word in house.ADDITION_FILES_MAX
    }
    small_tree(root, {f"{_CORE}/model/job.py": _RECORD + lines, **core, **patches})


def _sentences(root: Path) -> list[str]:
    return list(house.missed_goals(house.House(read_tree(root))))


def test_a_tree_that_meets_every_goal_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _good_tree(tmp_path)
    assert house.main(["--check", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "Every goal is met.\n"


def test_each_missed_goal_is_a_sentence_with_its_places(tmp_path: Path) -> None:
    _good_tree(tmp_path)
    small_tree(
        tmp_path,
        {
            "agent/everstep_agent/a.py": '"""What it is."""\nfrom everstep_agent.b import c\n',
            "agent/everstep_agent/b/c.py": "from everstep_agent import a\nclass Turn: ...\n",
            "agent/everstep_agent/d.py": "class Turn: ...\n",
            "docs/extending/driver.patch": "".join(
                f"diff --git a/agent/{name}.py b/agent/{name}.py\n" for name in "abcd"
            ),
        },
    )
    (tmp_path / "docs/extending/admin.patch").unlink()
    text = "\n".join(_sentences(tmp_path))
    assert "agent/everstep_agent/a.py is under 60 lines and has one importer" in text
    assert "the class name Turn means 2 things" in text
    assert "the caption of agent/everstep_agent/a.py does not name the thing first" in text
    assert (
        "everstep_agent and everstep_agent.b import each other: "
        "everstep_agent.a → everstep_agent.b.c; everstep_agent.b.c → everstep_agent.a"
    ) in text
    assert "driver touches 4 files instead of 3" in text
    assert "docs/extending has no patch with 'admin' in its name" in text


def test_bare_verbs_and_large_folders_may_get_fewer_and_not_more(tmp_path: Path) -> None:
    _good_tree(tmp_path)  # with one large folder
    verbs = "".join(
        f"class Queue{number}:\n    def take(self): ...\n" for number in range(house.BARE_VERBS_MAX)
    )
    many = {
        f"agent/everstep_agent/p{folder}/a{number}.py": ""
        for folder in range(house.LARGE_FOLDERS_MAX - 1)
        for number in range(16)
    }
    small_tree(tmp_path, {"agent/everstep_agent/a.py": verbs, **many})
    assert _sentences(tmp_path) == []
    one_more = {f"agent/everstep_agent/more/a{number}.py": "" for number in range(16)}
    queue = "class Queue:\n    def look(self): ...\n"
    small_tree(tmp_path, {"agent/everstep_agent/b.py": queue, **one_more})
    text = "\n".join(_sentences(tmp_path))
    assert f"{house.BARE_VERBS_MAX + 1} methods are called by a bare verb" in text
    assert "agent/everstep_agent/b.py: Queue.look" in text
    assert "everstep_agent.more (16)" in text


def test_a_listed_boundary_is_no_fault_until_it_has_grown_or_gone(tmp_path: Path) -> None:
    _good_tree(tmp_path)
    small_tree(
        tmp_path,
        {
            "agent/everstep_agent/a.py": "x = 1\n",
            "agent/everstep_agent/b.py": "import everstep_agent.a\n",
            "tools/house/boundaries.toml": "".join(
                f'[[boundary]]\nfile = "agent/everstep_agent/{name}.py"\nreason = "{reason}"\n'
                for name, reason in (("a", "a table"), ("gone", ""))
            ),
        },
    )
    assert _sentences(tmp_path) == [
        "tools/house/boundaries.toml lists agent/everstep_agent/gone.py, "
        "which is no small file any more",
        "tools/house/boundaries.toml gives no reason for agent/everstep_agent/gone.py",
    ]


def test_the_core_is_to_have_the_wanted_size(tmp_path: Path) -> None:
    _good_tree(tmp_path)
    for number in range(30):
        (tmp_path / f"{_CORE}/jobs/m{number}.py").unlink()
    small_tree(tmp_path, {f"{_CORE}/jobs/m{number}.py": "x = 1\n" for number in range(30, 44)})
    assert [sentence.split(";")[0] for sentence in _sentences(tmp_path)] == [
        "the core has 15 modules",
        "the median module of the core has 1 lines",
    ]


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
    assert table["HEAD"]["source files"] == "45"
    assert table["this tree"]["source files"] == "46"
    assert table["HEAD"]["fields of the job's record"] == "1"


def test_the_table_is_markdown_with_the_goals() -> None:
    row = house.Row("files", "all of them", "≤ 3", lambda _: "")
    assert list(house.table_lines([row], {"before": ["9"], "this tree": ["2"]})) == [
        "| | before | this tree | goal |",
        "|---|---|---|---|",
        "| files | 9 | 2 | ≤ 3 |",
    ]
