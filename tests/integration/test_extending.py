"""The patches of docs/extending: each applies to a copy of the tree, and brings tests that need it.

The long one asks of all five together what `make check` asks of the tree.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import extending

PATCHES = extending.patches()
_PACKAGES = (
    "everstep", "everstep_common", "everstep_proto", "everstep_agent", "everstep_controller",
    "everstep_cli",
)  # fmt: skip


def applied(folder: Path, patches: Iterable[extending.Patch]) -> Path:
    """Return a copy of the tree with some patches, and with the stubs that they need."""
    extending.copy_tree(folder)
    for patch in patches:
        extending.apply(patch, folder)
    extending.write_stubs(folder)
    return folder


def assert_passes(done: subprocess.CompletedProcess[str]) -> None:
    """Fail with the output of a program that did."""
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def tool(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a tool of the virtual environment in a copy."""
    program = Path(sys.executable).with_name(command[0])
    return subprocess.run(
        [str(program), *command[1:]],
        cwd=folder, env=extending.environment_of(folder), capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_there_is_a_patch_of_each_kind() -> None:
    assert [patch.name for patch in PATCHES] == [
        "admin", "category", "driver", "finding", "message",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the tree without a patch."""
    folder = tmp_path_factory.mktemp("tree")
    extending.copy_tree(folder)
    return folder


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_a_patch_applies_alone(patch: extending.Patch, tree: Path) -> None:
    assert patch.tests, "its head names no test"
    extending.check_applies(patch, tree)


def test_all_patches_apply_together_and_their_tests_pass(tmp_path: Path) -> None:
    tests = [test for patch in PATCHES for test in patch.tests]
    assert_passes(extending.run_tests(applied(tmp_path / "tree", PATCHES), tests))


def test_a_patch_that_does_not_apply_says_what_to_type(tmp_path: Path) -> None:
    extending.copy_tree(tmp_path)
    (patch,) = [one for one in PATCHES if one.name == "category"]
    (file,) = patch.files
    (tmp_path / file).write_text("")
    with pytest.raises(extending.PatchError, match=r"python tools/extending\.py rebase category"):
        extending.apply(patch, tmp_path)
    assert (tmp_path / file).read_text() == ""


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_the_test_of_a_patch_passes_alone_and_fails_without_its_code(
    patch: extending.Patch, tmp_path: Path
) -> None:
    folder = applied(tmp_path / "tree", [patch])
    assert_passes(extending.run_tests(folder, patch.tests))
    for name in patch.files:
        if name not in patch.tests and (extending.ROOT / name).exists():
            (folder / name).write_text(_without_code(patch, name, (folder / name).read_text()))
        elif name not in patch.tests:
            (folder / name).unlink()
    extending.write_stubs(folder)
    assert extending.run_tests(folder, patch.tests).returncode != 0


def _without_code(patch: extending.Patch, name: str, after: str) -> str:
    """Return a file as it is without the patch, but with the examples in its docstrings."""
    if patch.name != "category":
        return (extending.ROOT / name).read_text()
    return after.replace('"growth": Category.PLANNED_GROWTH', '"growth": Category.PLANNED')


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_tree_with_all_patches_is_what_make_check_wants(tmp_path: Path) -> None:
    folder = applied(tmp_path / "tree", PATCHES)
    extending.write_generated(folder)
    # What mypy knows of files that no patch touches, it need not find out again.
    if (known := extending.ROOT / ".mypy_cache").is_dir():
        shutil.copytree(known, folder / known.name)
    packages = [word for package in _PACKAGES for word in ("-p", package)]
    assert_passes(tool(folder, "ruff", "check", "."))
    assert_passes(tool(folder, "ruff", "format", "--check", "."))
    assert_passes(tool(folder, "mypy", *packages))
    assert_passes(tool(folder, "mypy", "tests", "bench", "docs", "examples", "tools"))
    assert_passes(tool(folder, "lint-imports"))
    tests = [test for patch in PATCHES for test in patch.tests]
    assert_passes(extending.run_tests(folder, ["tests/unit/proto", "tests/unit/docs", *tests]))
