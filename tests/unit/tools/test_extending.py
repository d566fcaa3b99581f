"""Extension patches and what changes under them: brought up to date, or left to a person."""

import subprocess
from pathlib import Path

import pytest

import extending

_LINES = [f"line {number}\n" for number in range(30)]


def commit(root: Path, text: str) -> None:
    """Commit a file of a small repository."""
    (root / "file.py").write_text(text)
    for command in (
        ["add", "--all"],
        ["-c", "user.name=x", "-c", "user.email=x", "commit", "-qmx"],
    ):
        subprocess.run(["git", *command], cwd=root, check=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a small repository."""
    folder = tmp_path / "root"
    folder.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    commit(folder, "".join(_LINES))
    return folder


@pytest.fixture
def patch(root: Path, tmp_path: Path) -> extending.Patch:
    """Return a patch of it that changes a line and adds a generated file, which it leaves out."""
    made = extending.Patch(tmp_path / "driver.patch")
    made.path.write_text("What it adds.\n\nTest: tests/test_it.py\n---\n")
    checkout = tmp_path / "first"
    subprocess.run(["git", "clone", "-q", "--shared", str(root), str(checkout)], check=True)
    (checkout / "file.py").write_text("".join(_LINES).replace("line 20\n", "line twenty\n"))
    (checkout / "proto" / "generated").mkdir(parents=True)
    (checkout / "proto" / "generated" / "stub.py").write_text("x = 1\n")
    extending.save_checkout(made, checkout)
    return made


def test_a_patch_has_its_head_and_no_generated_file(patch: extending.Patch) -> None:
    assert patch.head.startswith("What it adds.")
    assert (patch.tests, patch.files) == (["tests/test_it.py"], ["file.py"])
    assert "stub.py" not in patch.path.read_text()


def test_a_patch_moves_with_the_lines_around_it(
    patch: extending.Patch, root: Path, tmp_path: Path
) -> None:
    commit(root, "".join(["new\n"] * 9 + _LINES).replace("line 18\n", "line eighteen\n"))
    with pytest.raises(extending.PatchError, match=r"python tools/extending\.py rebase driver"):
        extending.apply(patch, root)
    assert extending.open_checkout(patch, tmp_path / "second", root) == []
    extending.save_checkout(patch, tmp_path / "second")
    extending.apply(patch, root)
    text = (root / "file.py").read_text()
    assert "line eighteen\n" in text
    assert "line twenty\n" in text
    assert patch.head.startswith("What it adds.")


def test_two_changes_of_one_line_are_a_conflict_for_a_person(
    patch: extending.Patch, root: Path, tmp_path: Path
) -> None:
    commit(root, "".join(_LINES).replace("line 20\n", "line 20.0\n"))
    assert extending.open_checkout(patch, tmp_path / "second", root) == ["file.py"]
