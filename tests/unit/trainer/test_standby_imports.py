"""What can be imported before a script runs is read from its text."""

from pathlib import Path

import pytest

from everstep.launch.standby.imports import imports_of
from everstep.launch.standby.python_command import PythonCommand, python_command


def _imports(folder: Path, text: str, **beside: str) -> list[str]:
    (folder / "train.py").write_text(text)
    for name, content in beside.items():
        (folder / f"{name}.py").write_text(content)
    return imports_of(folder / "train.py", folder)


def test_imports_are_found_in_their_order(tmp_path: Path) -> None:
    text = '"""Trains."""\nfrom __future__ import annotations\nimport torch, numpy as np\n'
    assert _imports(tmp_path, text + "from a.b import c\n") == ["torch", "numpy", "a.b"]


def test_nothing_is_imported_ahead_of_what_the_script_does_first(tmp_path: Path) -> None:
    text = "import os\nos.environ['OMP_NUM_THREADS'] = '1'\nimport numpy\n"
    assert _imports(tmp_path, text) == ["os"]


@pytest.mark.parametrize(
    "between",
    ["LIMIT = 3", "A, B = 1, 2", "SIZE: int = 4", "def f():\n    g()", "class C:\n    pass", "'x'"],
)
def test_what_only_names_things_is_passed(tmp_path: Path, between: str) -> None:
    assert _imports(tmp_path, f"import os\n{between}\nimport json\n") == ["os", "json"]


@pytest.mark.parametrize(
    "between",
    [
        "f()",
        "x = f()",
        "@f\ndef g():\n    pass",
        "for x in y:\n    pass",
        "a.b = 1",
        "try:\n    x\nfinally:\n    y",
    ],
)
def test_what_does_something_ends_it(tmp_path: Path, between: str) -> None:
    assert _imports(tmp_path, f"import os\n{between}\nimport json\n") == ["os"]


def test_modules_beside_the_script_are_read_and_not_imported(tmp_path: Path) -> None:
    beside = {"model": "import torch\nimport layers\n", "layers": "import math\nimport model\n"}
    assert _imports(tmp_path, "import model\nimport json\n", **beside) == ["torch", "math", "json"]


def test_what_a_module_beside_it_does_ends_it_too(tmp_path: Path) -> None:
    text = "import os\nimport setup_env\nimport numpy\n"
    assert _imports(tmp_path, text, setup_env="import json\nprint(1)\n") == ["os", "json"]


@pytest.mark.parametrize("text", ["import (", "\x00", "import os\n" + "(" * 500])
def test_a_script_that_cannot_be_read_imports_nothing(tmp_path: Path, text: str) -> None:
    assert _imports(tmp_path, text) == []


def test_a_script_that_is_not_there_imports_nothing(tmp_path: Path) -> None:
    assert imports_of(tmp_path / "absent.py", tmp_path) == []


@pytest.mark.parametrize(
    ("command", "flags", "script", "module", "arguments"),
    [
        (["python", "train.py", "-m", "x"], (), "train.py", "", ("-m", "x")),
        (
            ["python3", "-u", "-X", "dev", "-Wignore", "a.py"],
            ("-u", "-X", "dev", "-Wignore"),
            "a.py",
            "",
            (),
        ),
        (["python", "-um", "x"], None, "", "", ()),
        (["python", "-O", "-m", "pkg.train", "--lr", "1"], ("-O",), "", "pkg.train", ("--lr", "1")),
        (["python", "-c", "print(1)"], None, "", "", ()),
        (["python", "-"], None, "", "", ()),
        (["python", "folder"], None, "", "", ()),
        (["python"], None, "", "", ()),
        (["bash", "train.py"], None, "", "", ()),
        (["no-such-command", "train.py"], None, "", "", ()),
    ],
)
def test_commands_of_an_interpreter_are_understood(
    tmp_path: Path,
    command: list[str],
    flags: tuple[str, ...] | None,
    script: str,
    module: str,
    arguments: tuple[str, ...],
) -> None:
    for name in ("python", "python3", "bash"):
        (tmp_path / name).touch(mode=0o755)
    found = python_command(command, path=str(tmp_path))
    if flags is None:
        assert found is None
    else:
        interpreter = str(tmp_path / command[0])
        assert found == PythonCommand(interpreter, flags, script, module, arguments)


def test_the_file_of_a_module_below_the_folder_is_known(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").touch()
    command = PythonCommand("python", (), "", "pkg.train", ())
    assert command.path(tmp_path) == tmp_path / "pkg" / "train.py"
    assert PythonCommand("python", (), "", "json.tool", ()).path(tmp_path) is None
