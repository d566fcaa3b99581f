"""Code that has changed since a standby imported it is not run. Real processes."""

import os
import selectors
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from everstep.launch.standby.candidate import Candidate, WarmUp
from everstep.launch.standby.python_command import python_command

_DEADLINE_S = 60.0
# The process is the same; an interpreter that began anew has no other name in its command line.
_SCRIPT = """
import sys
import lib
warm = "waiting.py" in " ".join(sys.orig_argv)
print("warm" if warm else "anew", lib.VERSION, sys.argv[1:], flush=True)
"""


@dataclass
class _Stage:
    """A script, and its standbys."""

    folder: Path
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    candidates: list[Candidate] = field(default_factory=list)

    def ready(self, *modules: str, device: int = -1, **environ: str) -> Candidate:
        """Return a standby that has imported these."""
        command = python_command([sys.executable, str(self.folder / "train.py"), "--lr", "1"])
        assert command
        base = {"PATH": os.environ["PATH"], **environ}
        warm_up = WarmUp(command, modules, device=device)
        candidate = Candidate(self.selector, warm_up, base, lambda _: None)
        self.candidates.append(candidate)
        self.until(lambda: candidate.ready or candidate.ended)
        assert candidate.ready, candidate.remark
        return candidate

    def outcome(self, candidate: Candidate, **environ: str) -> str:
        """Return what the rank writes that it becomes."""
        taken = candidate.become({"PATH": os.environ["PATH"], **environ})
        assert taken
        os.close(taken.pidfd)
        out, error = taken.process.communicate(timeout=_DEADLINE_S)
        assert taken.process.returncode == 0, error
        return (taken.said[0] + out).decode().strip()

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline
            for key, _ in self.selector.select(0.1):
                key.data()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[_Stage]:
    made = _Stage(tmp_path / "scripts")
    made.folder.mkdir()
    (made.folder / "train.py").write_text(_SCRIPT)
    yield made
    for candidate in made.candidates:
        candidate.end()
    made.selector.close()


def _write(path: Path, text: str) -> None:
    """Write a file as if it had been written an hour ago: before any standby was made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    an_hour_ago = time.time() - 3600
    os.utime(path, (an_hour_ago, an_hour_ago))


def test_a_module_that_has_not_changed_is_not_imported_again(stage: _Stage, tmp_path: Path) -> None:
    source = tmp_path / "src"
    _write(source / "lib.py", "VERSION = 1")
    candidate = stage.ready("lib", "json", PYTHONPATH=str(source))
    assert stage.outcome(candidate, PYTHONPATH=str(source)) == "warm 1 ['--lr', '1']"


def test_a_module_on_pythonpath_that_was_changed_is_imported_anew(
    stage: _Stage, tmp_path: Path
) -> None:
    source = tmp_path / "src"
    _write(source / "lib.py", "VERSION = 1")
    candidate = stage.ready("lib", PYTHONPATH=str(source))
    (source / "lib.py").write_text("VERSION = 2")
    assert stage.outcome(candidate, PYTHONPATH=str(source)) == "anew 2 ['--lr', '1']"


def test_a_module_that_is_gone_is_looked_for_elsewhere(stage: _Stage, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    _write(first / "lib.py", "VERSION = 1")
    _write(second / "lib.py", "VERSION = 2")
    path = f"{first}:{second}"
    candidate = stage.ready("lib", PYTHONPATH=path)
    (first / "lib.py").unlink()
    assert stage.outcome(candidate, PYTHONPATH=path) == "anew 2 ['--lr', '1']"


def test_a_package_of_an_editable_install_that_was_changed_is_imported_anew(
    stage: _Stage, tmp_path: Path
) -> None:
    # As setuptools does it: a finder in site-packages that points to the source.
    installed, source = tmp_path / "lib" / "site-packages", tmp_path / "checkout" / "lib"
    finder = (
        "import importlib.util as u, sys\n"
        "class Finder:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        f"        file = {str(source / '__init__.py')!r}\n"
        "        return u.spec_from_file_location(name, file) if name == 'lib' else None\n"
        "sys.meta_path.append(Finder)\n"
    )
    _write(installed / "editable_finder.py", finder)
    _write(source / "__init__.py", "VERSION = 1")
    _write(stage.folder / "train.py", "import editable_finder" + _SCRIPT)
    _settle(installed)
    path = str(installed)
    unchanged = stage.ready("editable_finder", "lib", PYTHONPATH=path)
    changed = stage.ready("editable_finder", "lib", PYTHONPATH=path)
    assert stage.outcome(unchanged, PYTHONPATH=path) == "warm 1 ['--lr', '1']"
    (source / "__init__.py").write_text("VERSION = 2")
    assert stage.outcome(changed, PYTHONPATH=path) == "anew 2 ['--lr', '1']"


def _settle(installed: Path) -> None:
    """Let the interpreter leave behind what it leaves once."""
    (installed / "__pycache__").mkdir(exist_ok=True)
    an_hour_ago = time.time() - 3600
    os.utime(installed, (an_hour_ago, an_hour_ago))


def test_a_package_that_an_installer_has_replaced_is_imported_anew(
    stage: _Stage, tmp_path: Path
) -> None:
    installed = tmp_path / "lib" / "site-packages"
    _write(installed / "lib" / "__init__.py", "VERSION = 1")
    (installed / "lib-1.dist-info").mkdir()
    _settle(installed)
    path = str(installed)
    unchanged, changed = (stage.ready("lib", PYTHONPATH=path) for _ in range(2))
    assert stage.outcome(unchanged, PYTHONPATH=path) == "warm 1 ['--lr', '1']"
    (installed / "lib-1.dist-info").rename(installed / "lib-2.dist-info")
    (installed / "lib" / "__init__.py").write_text("VERSION = 2")
    assert stage.outcome(changed, PYTHONPATH=path) == "anew 2 ['--lr', '1']"


def test_what_was_changed_while_it_was_imported_is_imported_anew(
    stage: _Stage, tmp_path: Path
) -> None:
    source = tmp_path / "src"
    _write(source / "lib.py", "VERSION = 1\nopen(__file__, 'w').write('VERSION = 2')")
    candidate = stage.ready("lib", PYTHONPATH=str(source))
    assert stage.outcome(candidate, PYTHONPATH=str(source)) == "anew 2 ['--lr', '1']"


def test_a_file_of_that_name_beside_the_script_comes_first(stage: _Stage, tmp_path: Path) -> None:
    source = tmp_path / "src"
    _write(source / "lib.py", "VERSION = 1")
    candidate = stage.ready("lib", PYTHONPATH=str(source))
    (stage.folder / "lib.py").write_text("VERSION = 'beside'")
    assert stage.outcome(candidate, PYTHONPATH=str(source)) == "anew beside ['--lr', '1']"


def test_the_scripts_own_folder_on_pythonpath_is_no_other_place(
    stage: _Stage, tmp_path: Path
) -> None:
    _write(stage.folder / "lib.py", "VERSION = 1")
    link = tmp_path / "link"
    link.symlink_to(stage.folder)
    candidate = stage.ready("lib", PYTHONPATH=str(link))
    assert stage.outcome(candidate, PYTHONPATH=str(link)) == "warm 1 ['--lr', '1']"


_TORCH = """
import os
class cuda:
    is_available = staticmethod(lambda: True)
    is_initialized = staticmethod(lambda: True)
    def synchronize(index):
        if os.path.exists(os.environ["BROKEN"]):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
def zeros(count, device):
    assert device == "cuda:3"
"""


@pytest.mark.parametrize(("broken", "how"), [(False, "warm"), (True, "anew")])
def test_one_whose_device_has_failed_begins_anew(
    stage: _Stage, tmp_path: Path, broken: bool, how: str
) -> None:
    source, mark = tmp_path / "src", tmp_path / "broken"
    _write(source / "lib.py", "VERSION = 1")
    _write(source / "torch.py", _TORCH)
    environ = {"PYTHONPATH": str(source), "BROKEN": str(mark)}
    candidate = stage.ready("torch", "lib", device=3, **environ)
    assert candidate.remark == ""
    if broken:
        mark.touch()
    assert stage.outcome(candidate, **environ) == f"{how} 1 ['--lr', '1']"
