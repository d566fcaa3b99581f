"""What the ranks execute."""

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from everstep.launch.command_line.option_parser import Line, UsageError
from everstep.launch.command_line.program import checked_command, program


def line(*command: str, parted: bool = False) -> Line:
    return Line((), command, parted)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_script_is_run_by_this_interpreter() -> None:
    assert program(line("train.py", "-x"), {}) == (sys.executable, "-u", "train.py", "-x")
    assert program(line("train.py", parted=True), {}) == (sys.executable, "-u", "train.py")
    assert program(line("train.py"), {"PYTHON_EXEC": "sh"}) == ("sh", "-u", "train.py")
    with pytest.raises(UsageError, match="PYTHON_EXEC=/p: no such program on this node"):
        program(line("train.py"), {"PYTHON_EXEC": "/p"})


def test_a_module_and_a_program() -> None:
    assert program(line("mine.train"), {}, module=True)[1:] == ("-u", "-m", "mine.train")
    assert program(line("sh", "-c", "x"), {}, no_python=True) == ("sh", "-c", "x")
    assert program(line("sh", "-c", "x", parted=True), {}) == ("sh", "-c", "x")


class Hook(MetaPathFinder):
    """An import hook, as an editable install leaves it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "broken":
            raise ImportError(fullname)
        return ModuleSpec(fullname, None) if fullname == "editpkg" else None


def test_a_module_that_only_an_import_hook_knows_is_found_and_not_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Hook()])
    for name in ("editpkg", "editpkg.train", "broken"):
        assert program(line(name), {}, module=True)[-1] == name
        assert name not in sys.modules
    with pytest.raises(UsageError, match="no module 'my_train'"):
        program(line("my_train"), {}, module=True)


@pytest.mark.parametrize(
    ("command", "choice", "told"),
    [
        ([], {}, "end the command with 'train.py …' or '-- python train.py …'"),
        (["trian.py"], {}, "no script 'trian.py' in .*; did you mean 'train.py'?"),
        (["/none/train.py"], {}, "no script '/none/train.py' in .*; give its path"),
        (["mine"], {}, "'mine' is a folder without a __main__.py; name a script in it"),
        (["sh", "x.sh"], {}, "'sh' is a program, not a script; write '-- sh x.sh'"),
        (["my_train"], {"module": True}, "no module 'my_train' for .*; install it there"),
        (["train.py"], {"module": True}, "'train' is a module .* leave out -m to start a file"),
        (["./train.py"], {"module": True}, "'./train.py' is a path, .*; leave out -m"),
        (["x"], {"module": True, "no_python": True}, "leave out --no-python"),
        (["./train.py"], {"no_python": True}, "train.py is not executable; name a program"),
        (["no-such"], {"no_python": True}, "no command 'no-such' on this node"),
    ],
)
def test_what_is_not_there_is_told_before_anything_starts(
    command: list[str], choice: dict[str, bool], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        program(line(*command), {}, **choice)


def test_a_folder_that_is_gone_is_told_before_anything_is_looked_for_in_it(folder: Path) -> None:
    gone = folder / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    with pytest.raises(UsageError, match=r"the current folder cannot be used .*; go to one"):
        program(line("train.py"), {})


def test_the_script_of_a_command_is_looked_for_as_well(folder: Path) -> None:
    with pytest.raises(UsageError, match="no script"):
        checked_command(["python3", "-u", "other.py"])
    assert checked_command(["python3", "-u", str(folder / "train.py")])[-1].endswith("train.py")
    assert checked_command(["python3", "-m", "no.such.module.py"])
