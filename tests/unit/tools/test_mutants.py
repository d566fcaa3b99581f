"""Mutants are killed, survive or have no place; and they find their text after it has moved."""

import re
import subprocess
from pathlib import Path

import pytest

import mutants
from mutants import Mutant, Place

_FILE = "common/everstep_common/clock.py"
_OLD = "def later(a, b):\n    return a if a > b else b\n\n\ndef unused():\n    return 1\n"
_TEST = (
    "from everstep_common.clock import later\n\ndef test_later():\n    assert later(1, 2) == 2\n"
)
_CONFIG = '[tool.pytest.ini_options]\npythonpath = ["common"]\n'


def _mutant(old: str, new: str, after: Place | None = None) -> Mutant:
    return Mutant(
        "one", "breaks it", Place(_FILE, old, new), after, ("tests/test_x.py::test_later",)
    )


def _write(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_a_mutant_keeps_its_file_while_its_text_is_there_once(tmp_path: Path) -> None:
    root = _write(tmp_path, {_FILE: _OLD, "common/everstep_common/other.py": _OLD})
    mutant = _mutant("if a > b", "if a < b")
    assert mutants.place_before(root, mutant) == mutant.before
    assert mutants.place_after(root, mutant) == mutant.before


def test_a_mutant_finds_its_text_after_a_move_within_the_component(tmp_path: Path) -> None:
    moved = "common/everstep_common/times/order.py"
    root = _write(tmp_path, {moved: _OLD, "agent/everstep_agent/order.py": _OLD})
    place = mutants.place_after(root, _mutant("if a > b", "if a < b"))
    assert place == Place(moved, "if a > b", "if a < b")


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({_FILE: "x = 1\n"}, "found in nowhere"),
        (
            {"common/everstep_common/a.py": _OLD, "common/everstep_common/b.py": _OLD},
            "found in common/everstep_common/a.py, common/everstep_common/b.py",
        ),
    ],
)
def test_a_text_that_is_gone_or_there_twice_has_to_be_named(
    tmp_path: Path, files: dict[str, str], sentence: str
) -> None:
    with pytest.raises(LookupError, match=sentence):
        mutants.place_after(_write(tmp_path, files), _mutant("if a > b", "if a < b"))


def test_what_is_said_of_the_new_place_holds(tmp_path: Path) -> None:
    root = _write(tmp_path, {_FILE: _OLD})
    after = Place(_FILE, "return 1", "return 2")
    assert mutants.place_after(root, _mutant("gone", "gone too", after)) == after
    with pytest.raises(LookupError, match="0 times"):
        mutants.place_after(root, _mutant("x", "y", Place(_FILE, "return 3", "return 2")))


_TABLE = """
[[mutant]]
id = "small-1"
breaks = "the earlier of two times is called later"
tests = ["tests/test_x.py::test_later"]
before = {{file = "{file}", old = "if a > b", new = "if a < b"}}

[[mutant]]
id = "small-2"
breaks = "what nobody uses"
tests = ["tests/test_x.py::test_later"]
before = {{file = "{file}", old = "return 1", new = "return 2"}}

[[mutant]]
id = "small-3"
breaks = "what is not there any more"
tests = ["tests/test_x.py::test_later"]
before = {{file = "{file}", old = "return 0", new = "return 3"}}
"""


def test_each_verdict_is_told_and_one_that_is_not_killed_fails(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The old revision has the test elsewhere, and the text of the third mutant."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    table = {"tools/mutants/small.toml": _TABLE.format(file=_FILE)}
    package = {"common/everstep_common/__init__.py": "", "pyproject.toml": _CONFIG}
    old = {_FILE: _OLD + "    return 0\n", "tests/test_x.py": _TEST, **package, **table}
    subprocess.run([*git, "init", "--quiet"], check=True)
    _write(tmp_path, old)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "old"], check=True)
    (tmp_path / "tests/test_x.py").unlink()
    _write(tmp_path, {_FILE: _OLD, "tests/unit/test_y.py": _TEST})
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "new"], check=True)

    assert mutants.main(["--root", str(tmp_path), "--before", "HEAD~1"]) == 1
    *told, summary, first, second = capfd.readouterr().out.splitlines()
    assert sorted(line.split()[:2] for line in told) == [
        ["does", "not"],
        ["killed", "small-1"],
        ["survived", "small-2"],
    ]
    assert re.fullmatch(r"3 mutants in \d+ s: 1 killed, 1 survived, 1 does not apply", summary), (
        summary
    )
    # Those that a person must see to stand at the end again.
    assert {first, second} == {line for line in told if not line.startswith("killed")}


def test_a_table_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="no mutants of nothing"):
        mutants.read_mutants(tmp_path, "nothing")


def test_every_mutant_of_this_tree_finds_its_text() -> None:
    lost = {}
    for mutant in mutants.read_mutants(mutants.ROOT / "tools" / "mutants"):
        try:
            mutants.place_after(mutants.ROOT, mutant)
        except LookupError as error:
            lost[mutant.id] = str(error)
    assert lost == {}
