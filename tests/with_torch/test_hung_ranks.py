"""What a look at the ranks of a real job shows while one of them holds the others back."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_common.codec import from_json
from everstep_common.hangs.reports.rank_report import EvidenceSource, ProcessState, RankHangReport
from real.ordinary_user import ALICE, import_path, missing, python_for_all

pytestmark = pytest.mark.timeout(180)

_DRIVER = Path(__file__).with_name("look_at_hung_job.py")
_CULPRIT = 1
# A container as Docker makes them: its own processes, and no capability to trace any.
_CONTAINER = (
    *("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"),
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder with a path short enough for the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="es") as name:
        yield Path(name)


def look(
    folder: Path, how: str, *launched: str, prefix: tuple[str, ...] = ()
) -> dict[int, RankHangReport]:
    """Return the reports on a job that hangs like this, by rank; all others wait for one."""
    reports = read(folder, how, *launched, prefix=prefix)
    for victim in (0, 2, 3):
        check_victim(reports[victim])
    return dict(enumerate(reports))


def read(
    folder: Path, how: str, *launched: str, prefix: tuple[str, ...] = ()
) -> list[RankHangReport]:
    """Return the reports on a job that hangs like this."""
    python = python_for_all() if prefix else sys.executable
    known = {"PATH": os.environ["PATH"], "PYTHONPATH": import_path(), "HOME": str(folder)}
    done = subprocess.run(
        [*prefix, python, str(_DRIVER), how, *launched],
        env={**known, "TMPDIR": str(folder)},
        cwd=folder,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert "sesame" not in done.stdout  # names and lines, never values
    assert not any("Server listening" in line for line in told["said"]), told["said"]
    reports = [from_json(RankHangReport, one) for one in told["reports"]]
    assert [one.rank for one in reports] == [0, 1, 2, 3]
    return reports


def check_victim(report: RankHangReport) -> None:
    """Check that a rank is seen to wait in the sixth reduction."""
    (group,) = report.groups
    assert (group.members, group.enqueued, group.completed) == ("0-3", 6, 5)
    assert [one.name for one in group.pending] == ["all_reduce"]
    assert report.process.answers_ping
    assert report.process.gil_held is False
    assert any("hung_job.py" in frame for frame in report.process.python_stack)
    assert report.timeout_ms == 1_800_000  # gloo's own
    assert "torch" in {library.name for library in report.libraries}


def check_gil_held(report: RankHangReport) -> None:
    """Check that a rank is seen to hold the GIL, and where."""
    assert report.process.answers_ping
    assert report.process.gil_held
    assert report.process.native_stack_unchanged
    assert report.process.wchan
    # The deepest line of Python, though nobody could ask the interpreter.
    assert report.process.python_stack[0].endswith(" hold_back")
    assert report.groups[0].enqueued == 5


def test_a_rank_that_sleeps_is_seen_where_it_sleeps(folder: Path) -> None:
    report = look(folder, "sleep")[_CULPRIT]
    assert report.process.state is ProcessState.SLEEPING
    assert report.process.gil_held is False
    assert report.process.python_stack[0].endswith(" hold_back")
    assert (report.groups[0].enqueued, report.groups[0].completed) == (5, 5)
    assert report.blind == ()


def test_a_rank_that_holds_the_gil_is_seen_to(folder: Path) -> None:
    check_gil_held(look(folder, "gil")[_CULPRIT])


def test_a_stopped_rank_is_seen_to_be_stopped(folder: Path) -> None:
    report = look(folder, "stop")[_CULPRIT]
    assert report.process.state is ProcessState.STOPPED
    assert report.process.answers_ping is None
    assert report.process.gil_held is None
    assert EvidenceSource.PYTHON_STACK in {blind.source for blind in report.blind}


def test_a_rank_that_skips_a_collective_is_seen_in_another_one(folder: Path) -> None:
    report = look(folder, "skip")[_CULPRIT]
    (group,) = report.groups
    assert [one.name for one in group.pending] == ["broadcast"]
    assert group.enqueued == 6
    assert report.process.gil_held is False


def test_ranks_that_a_shell_starts_are_found_by_it(folder: Path) -> None:
    script = folder / "train.sh"
    script.write_text(f'#!/bin/sh\n{sys.executable} "$@"\nexit $?\n')
    script.chmod(0o755)
    check_gil_held(look(folder, "gil", "--no-python", str(script))[_CULPRIT])


def test_an_interpreter_that_ignores_its_variables_is_read_from_outside(folder: Path) -> None:
    reports = read(folder, "gil", "--no-python", sys.executable, "-E")
    for report in reports:
        told = {one.source: one.reason for one in report.blind}
        assert "ignores PYTHONPATH" in told[EvidenceSource.WORKER_SERVER]
        assert report.process.state is ProcessState.SLEEPING
        assert report.process.native_stack_unchanged
        assert "torch" in {library.name for library in report.libraries}
        if shutil.which("py-spy"):
            assert any("hung_job.py" in frame for frame in report.process.python_stack)
        else:
            assert "py-spy is not installed" in told[EvidenceSource.PYTHON_STACK]


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_an_ordinary_user_without_any_right_sees_the_same(folder: Path) -> None:
    ALICE.own(folder)
    check_gil_held(look(folder, "gil", prefix=ALICE.become)[_CULPRIT])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a container")
def test_within_a_container_that_may_trace_nothing_the_same_is_seen(folder: Path) -> None:
    check_gil_held(look(folder, "gil", prefix=_CONTAINER)[_CULPRIT])
