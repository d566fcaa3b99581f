"""Ctrl-C at a run on booted machines: of all that it started nothing is left, however it ends."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.waits import wait_until
from field.machines.machine import remove_groups
from real.sandbox import denied

_DENIED = denied("mount -t tmpfs tmpfs /mnt") if os.geteuid() == 0 else "needs root"
pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(120),
    pytest.mark.skipif(bool(_DENIED), reason=_DENIED),
]
_HERE = Path(__file__).parent
_FREEZER = Path("/sys/fs/cgroup/freezer")
_LONG_S = "600"


@contextlib.contextmanager
def _isolating(folder: Path, grace_s: str, manner: str) -> Iterator["subprocess.Popen[str]"]:
    """Yield a process that runs the program of these tests in namespaces."""
    program = [sys.executable, str(_HERE / "isolated_program.py"), str(folder), manner]
    command = [sys.executable, str(_HERE / "isolating_program.py"), grace_s, folder.name, *program]
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _await_line(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdout is not None
    for told in process.stdout:
        if told.strip() == line:
            return
    raise AssertionError(f"it ended without {line!r}")


def _processes(folder: Path) -> list[int]:
    """Return the processes that name the folder, in whatever namespaces."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder) in path.read_text() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found


def _assert_nothing_is_left(process: "subprocess.Popen[str]", folder: Path) -> str:
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert not _processes(folder)
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()
    folder.rmdir()
    return told


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder that no other test names."""
    made = tmp_path / f"everstep-test-{os.getpid()}"
    made.mkdir()
    return made


def test_a_program_that_is_asked_once_ends_in_good_order(folder: Path) -> None:
    with _isolating(folder, _LONG_S, "ends") as process:
        _await_line(process, "under way")
        process.send_signal(signal.SIGINT)
        assert "code 5" in _assert_nothing_is_left(process, folder)


def test_a_program_that_is_asked_before_it_listens_ends(folder: Path) -> None:
    with _isolating(folder, _LONG_S, "ends") as process:
        _await_line(process, "asked from now on")
        process.send_signal(signal.SIGINT)
        assert "code 5" in _assert_nothing_is_left(process, folder)


def test_a_program_that_does_not_end_in_time_is_killed(folder: Path) -> None:
    with _isolating(folder, "0.5", "stays") as process:
        _await_line(process, "under way")
        process.send_signal(signal.SIGTERM)
        assert "code -9" in _assert_nothing_is_left(process, folder)


def test_a_program_that_is_asked_twice_is_killed_with_what_is_frozen(folder: Path) -> None:
    with _isolating(folder, _LONG_S, "stays") as process:
        _await_line(process, "under way")
        with _frozen(folder):
            process.send_signal(signal.SIGINT)
            _await_line(process, "ending in good order; a second Ctrl-C ends it at once")
            process.send_signal(signal.SIGINT)
            assert "code -9" in _assert_nothing_is_left(process, folder)
        assert not (_FREEZER / folder.name).exists()


def test_what_asks_is_killed_and_the_program_with_it(folder: Path) -> None:
    with _isolating(folder, _LONG_S, "stays") as process:
        _await_line(process, "under way")
        process.kill()
        process.wait()
        wait_until(lambda: not _processes(folder), 30.0, "a process is left")


@contextlib.contextmanager
def _frozen(folder: Path) -> Iterator[None]:
    """Freeze the program's daemon as a machine is frozen, where control groups can do that."""
    machine = _FREEZER / folder.name / "m1"
    if (_FREEZER / "cgroup.procs").exists():
        machine.mkdir(parents=True)
        daemon = wait_until(lambda: _daemon(folder), 10.0, "no daemon")
        (machine / "cgroup.procs").write_text(str(daemon))
        (machine / "freezer.state").write_text("FROZEN")
    try:
        yield
    finally:
        remove_groups(folder.name)


def _daemon(folder: Path) -> int | None:
    for pid in _processes(folder):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sh\0"):
                return pid
    return None
