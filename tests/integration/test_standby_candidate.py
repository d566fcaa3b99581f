"""A warm standby becomes a rank that cannot tell that it was not started as one. Real processes."""

import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from everstep.launch.inspection.rank_pages import RankPages
from everstep.launch.processes.children import spawn
from everstep.launch.standby.candidate import Candidate, WarmUp
from everstep.launch.standby.python_command import PythonCommand, python_command
from everstep.rank import interpreter
from everstep_common.clock import boot_ns

_DEADLINE_S = 30.0


@dataclass
class _Stage:
    """A selector, and the standbys that were made on it."""

    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    changed: list[Candidate] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)

    def standby(self, command: PythonCommand, *modules: str, **environ: str) -> Candidate:
        warm_up = WarmUp(command, modules)
        base = {"PATH": os.environ["PATH"], **environ}
        candidate = Candidate(self.selector, warm_up, base, self.changed.append)
        self.candidates.append(candidate)
        return candidate

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline
            for key, _ in self.selector.select(0.1):
                key.data()


@pytest.fixture
def stage() -> Iterator[_Stage]:
    made = _Stage()
    yield made
    for candidate in made.candidates:
        candidate.end()
    assert not made.selector.get_map()
    made.selector.close()


def _command(*words: str) -> PythonCommand:
    command = python_command([sys.executable, *words])
    assert command
    return command


def _outcome(stage: _Stage, candidate: Candidate, environ: dict[str, str]) -> tuple[int, str, str]:
    stage.until(lambda: candidate.ready)
    taken = candidate.become({"PATH": os.environ["PATH"], **environ})
    assert taken
    out, error = taken.process.communicate(timeout=_DEADLINE_S)
    os.close(taken.pidfd)
    return (
        taken.process.returncode,
        (taken.said[0] + out).decode(),
        (taken.said[1] + error).decode(),
    )


def _cold(command: PythonCommand, environ: dict[str, str]) -> tuple[int, str, str]:
    target = [command.script] if command.script else ["-m", command.module]
    words = [command.interpreter, *command.flags, *target, *command.arguments]
    process = spawn(words, {"PATH": os.environ["PATH"], **environ})
    out, error = process.communicate(timeout=_DEADLINE_S)
    return process.returncode, out.decode(), error.decode()


_LOOKS = """
import json, os, sys
from multiprocessing import get_context
import beside
class Thing:
    pass
def child(queue):
    queue.put((__name__, Thing.__module__))
if __name__ == "__main__":
    queue = get_context("spawn").SimpleQueue()
    process = get_context("spawn").Process(target=child, args=(queue,))
    process.start()
    seen = queue.get()
    process.join()
    environ = {k: v for k, v in os.environ.items() if k != "LC_CTYPE"}
    print(json.dumps([sys.argv, sys.path, __file__, __name__, environ, Thing.__module__, seen]))
    print(beside.__file__, sys.modules["__main__"].__file__, __spec__, os.getcwd())
"""


@pytest.mark.parametrize("place", ["{}/train.py", "train.py", "./train.py"])
def test_a_script_sees_what_it_would_see_in_a_new_process(
    stage: _Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "train.py").write_text(_LOOKS)
    (tmp_path / "beside.py").touch()
    monkeypatch.chdir(tmp_path)
    command = _command(place.format(tmp_path), "--lr", "0.1")
    candidate = stage.standby(command, "json", "multiprocessing", RANK="9", OLD="1")
    environ = {"RANK": "1", "WORLD_SIZE": "4"}
    assert _outcome(stage, candidate, environ) == _cold(command, environ)


@pytest.mark.parametrize(
    "text",
    [
        "raise ValueError('bad batch')",
        "def f():\n    return 1 / 0\nf()",
        "import sys\nsys.exit('no')",
        "import sys\nsys.exit(7)",
        "x = (",
        "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
        "raise KeyboardInterrupt",
        "import threading, time\nthreading.Thread(target=lambda: print('late')).start()",
        "import atexit\natexit.register(print, 'bye')",
    ],
)
def test_it_ends_as_a_new_process_would(
    stage: _Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "train.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    command = _command("train.py")
    code, out, error = _outcome(stage, stage.standby(command, "json"), {})
    cold_code, cold_out, cold_error = _cold(command, {})
    assert (code, out) == (cold_code, cold_out)
    # An interrupt's traceback has the frames of whoever was interrupted.
    assert error == cold_error or "KeyboardInterrupt" in text


def test_a_module_is_run_as_one(stage: _Stage) -> None:
    command = _command("-m", "json.tool", "--help")
    code, out, error = _outcome(stage, stage.standby(command), {})
    assert (code, out, error) == _cold(command, {})


def test_a_script_that_is_gone_is_said_as_python_says_it(stage: _Stage, tmp_path: Path) -> None:
    command = _command(str(tmp_path / "gone.py"))
    code, _, error = _outcome(stage, stage.standby(command), {})
    assert (code, "can't open file" in error) == (2, True)


def test_what_cannot_be_imported_is_a_remark_and_the_rank_tells(
    stage: _Stage, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("import no_such_module")
    candidate = stage.standby(_command(str(tmp_path / "train.py")), "no_such_module", "json")
    code, _, error = _outcome(stage, candidate, {})
    assert candidate.remark == "no_such_module: ModuleNotFoundError"
    assert (code, error.splitlines()[-1]) == (
        1,
        "ModuleNotFoundError: No module named 'no_such_module'",
    )


def test_what_an_import_writes_is_the_ranks(stage: _Stage, tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text("import sys\nprint('heard')\nprint('too', file=sys.stderr)")
    (tmp_path / "train.py").write_text("import noisy\nprint('ran')")
    command = _command("-u", str(tmp_path / "train.py"))
    candidate = stage.standby(command, "noisy", PYTHONPATH=str(tmp_path))
    assert _outcome(stage, candidate, {}) == (0, "heard\nran\n", "too\n")


def test_one_that_dies_while_it_waits_says_how(stage: _Stage, tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text("import os\nos.abort()")
    candidate = stage.standby(_command("train.py"), "deadly", PYTHONPATH=str(tmp_path))
    stage.until(lambda: stage.changed)
    assert (candidate.ended, candidate.remark) == (True, f"signal {signal.SIGABRT.value}")
    assert candidate.become({}) is None


def test_an_environment_that_does_not_fit_is_left_to_an_ordinary_start(stage: _Stage) -> None:
    candidate = stage.standby(_command("train.py"))
    stage.until(lambda: candidate.ready)
    assert candidate.become({"HUGE": "x" * 2_000_000}) is None
    assert candidate.ended


def test_its_memory_is_known_when_it_has_been_measured(stage: _Stage) -> None:
    candidate = stage.standby(_command("train.py"), "json")
    stage.until(lambda: candidate.ready)
    assert candidate.memory_bytes == 0
    assert 1_000_000 < candidate.measure() == candidate.memory_bytes < 1_000_000_000


def test_what_the_kernel_does_not_tell_of_its_memory_is_nothing(
    stage: _Stage, tmp_path: Path
) -> None:
    candidate = stage.standby(_command("train.py"))
    folder = tmp_path / str(candidate.process.pid)
    folder.mkdir()
    (folder / "smaps_rollup").write_text("5500-7ffc ---p 00000000 00:00 0 [rollup]\n")
    assert candidate.measure(tmp_path) == 0


def test_a_rank_that_was_a_standby_is_watched_whatever_was_imported_before(
    tmp_path: Path, stage: _Stage
) -> None:
    script = tmp_path / "train.py"
    script.write_text("import time\ntime.sleep(0.3)\n")
    known = {"PYTHONPATH": str(Path(interpreter.__file__).parent)}
    known["EVERSTEP_RANK_FILES"] = str(tmp_path)
    candidate = stage.standby(_command(str(script)), "socket", **known)
    pages = RankPages([0])
    assert _outcome(stage, candidate, {**known, **pages.environment(0)}) == (0, "", "")
    assert pages.read(0, boot_ns()).watched_at_ns > 0
    pages.close()
