"""What is made of the files of /proc about a rank that stands still."""

from dataclasses import replace
from pathlib import Path

import pytest

from everstep.launch.inspection.sources.process_look import (
    GoneError,
    ProcessLook,
    cpu_percent,
    grown,
    look,
    owner,
    why_unreadable,
)
from everstep_common.hangs.reports.rank_report import ProcessState

_PID = 77
_LOOK = ProcessLook(
    at_ns=0,
    state=ProcessState.SLEEPING,
    started_ticks=1000,
    cpu_ticks=50,
    user_ticks=40,
    switches=12,
    wchan="futex_wait",
    syscall="202 0x1 0x2",
)


def process(
    proc: Path,
    state: str,
    *,
    wchan: str = "futex_wait",
    syscall: str | None = "202 0x1",
    uid: int = 0,
    name: str = "python",
) -> Path:
    """Write the files of one process."""
    folder = proc / str(_PID)
    (folder / "task" / str(_PID)).mkdir(parents=True)
    numbers = ["0"] * 40
    numbers[10], numbers[11], numbers[18] = "30", "20", "1000"  # utime, stime, starttime
    stat = f"{_PID} ({name}) {state} {' '.join(numbers)}\n"
    (folder / "stat").write_text(stat)
    (folder / "task" / str(_PID) / "stat").write_text(stat)
    (folder / "task" / str(_PID) / "io").write_text("rchar: 900\nwchar: 4096\nwrite_bytes: 0\n")
    switches = "voluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t5\n"
    (folder / "task" / str(_PID) / "status").write_text(switches)
    (folder / "status").write_text(f"Name:\tpython\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (folder / "wchan").write_text(wchan)
    if syscall is not None:
        (folder / "syscall").write_text(f"{syscall}\n")
    return folder


@pytest.mark.parametrize(
    ("letter", "wchan", "state"),
    [
        ("R", "0", ProcessState.RUNNING),
        ("S", "futex_wait", ProcessState.SLEEPING),
        ("D", "io_schedule", ProcessState.UNINTERRUPTIBLE),
        ("T", "do_signal_stop", ProcessState.STOPPED),
        ("t", "ptrace_stop", ProcessState.STOPPED),
        ("Z", "0", ProcessState.DEAD),
        # Frozen by its cgroup, of version 2 and of version 1.
        ("S", "do_freezer_trap", ProcessState.STOPPED),
        ("D", "__refrigerator", ProcessState.STOPPED),
        ("?", "0", ProcessState.UNKNOWN),
    ],
)
def test_a_state_is_what_the_kernel_says(
    tmp_path: Path, letter: str, wchan: str, state: ProcessState
) -> None:
    process(tmp_path, letter, wchan=wchan)
    found = look(_PID, 5, tmp_path)
    assert found.state is state
    assert found.wchan == ("" if wchan == "0" else wchan)
    assert (found.started_ticks, found.cpu_ticks, found.user_ticks) == (1000, 50, 30)
    assert (found.switches, found.syscall) == (12, "202 0x1")


def test_a_name_that_looks_like_more_of_the_line_misleads_nobody(tmp_path: Path) -> None:
    process(tmp_path, "D", name="x) S 1 2 (y")
    assert look(_PID, 0, tmp_path).state is ProcessState.UNINTERRUPTIBLE


def test_a_process_that_is_gone_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(GoneError, match="77 is gone"):
        look(_PID, 0, tmp_path)
    with pytest.raises(GoneError):
        owner(_PID, tmp_path)


def test_a_main_thread_that_has_run_meanwhile_does_not_stand() -> None:
    assert _LOOK.stands_like(_LOOK)
    assert not replace(_LOOK, switches=13).stands_like(_LOOK)
    assert not replace(_LOOK, user_ticks=41).stands_like(_LOOK)
    assert not replace(_LOOK, state=ProcessState.RUNNING).stands_like(_LOOK)
    # Of what could not be read nothing is concluded.
    unknown = replace(_LOOK, switches=-1)
    assert not unknown.stands_like(unknown)


def test_a_stack_is_the_same_where_the_thread_has_not_moved() -> None:
    assert _LOOK.same_stack(_LOOK) is True
    assert replace(_LOOK, syscall="202 0x1 0x3").same_stack(_LOOK) is False
    # It returned, and called again.
    assert replace(_LOOK, switches=14).same_stack(_LOOK) is False
    running = replace(_LOOK, syscall="running")
    assert running.same_stack(running) is False
    assert replace(_LOOK, syscall="").same_stack(_LOOK) is None


def test_what_a_process_has_written_is_told_where_it_can_be_read(tmp_path: Path) -> None:
    folder = process(tmp_path, "S")
    assert look(_PID, 0, tmp_path).written_bytes == 4096
    (folder / "task" / str(_PID) / "io").unlink()
    assert look(_PID, 0, tmp_path).written_bytes == -1


def test_what_threads_do_that_answer_looks_is_not_what_the_rank_does(tmp_path: Path) -> None:
    folder = process(tmp_path, "R")
    for number, name, faults in (("78", "pt_workerserver", "950"), ("79", "pt_autograd_0", "7")):
        thread = folder / "task" / number
        thread.mkdir()
        numbers = ["0"] * 40
        numbers[6], numbers[8] = faults, "3"  # minflt, majflt
        (thread / "stat").write_text(f"{number} ({name}) S {' '.join(numbers)}\n")
        (thread / "io").write_text("rchar: 0\nwchar: 100000\n")
    seen = look(_PID, 0, tmp_path)
    assert (seen.faults, seen.written_bytes) == (10, 104096)


def test_time_on_processors_is_of_one_core() -> None:
    assert cpu_percent(_LOOK, replace(_LOOK, at_ns=1_000_000_000, cpu_ticks=75)) == 25
    assert cpu_percent(_LOOK, _LOOK) is None


def _setting(proc: Path, scope: str = "", status: str = "Seccomp:\t0\n") -> None:
    (proc / "self").mkdir()
    (proc / "self" / "status").write_text(status)
    if scope:
        (proc / "sys/kernel/yama").mkdir(parents=True)
        (proc / "sys/kernel/yama/ptrace_scope").write_text(f"{scope}\n")


@pytest.mark.parametrize(
    ("scope", "status", "words"),
    [
        ("3", "Seccomp:\t0\n", "kernel.yama.ptrace_scope is 3; 1 lets a launcher"),
        ("2", "Seccomp:\t2\n", "kernel.yama.ptrace_scope is 2; 1 lets a launcher"),
        ("1", "Seccomp:\t0\n", "only its launcher may look"),
        ("0", "Seccomp:\t2\n", "a seccomp filter"),
        ("", "Seccomp:\t0\n", "capabilities or the user namespace"),
    ],
)
def test_the_setting_that_keeps_a_reader_out_is_named(
    tmp_path: Path, scope: str, status: str, words: str
) -> None:
    process(tmp_path, "S", uid=tmp_path.stat().st_uid)
    _setting(tmp_path, scope, status)
    assert words in why_unreadable(_PID, tmp_path)


def test_a_process_that_is_not_dumpable_is_named_as_such(tmp_path: Path) -> None:
    # Its files are root's, and it is not.
    process(tmp_path, "S", uid=tmp_path.stat().st_uid + 1)
    _setting(tmp_path, "2")
    assert "not dumpable" in why_unreadable(_PID, tmp_path)


@pytest.mark.parametrize(
    ("before", "first", "second", "found"),
    [
        (100, 4000, 5000, 4900),
        (-1, 4000, 5000, 1000),
        # A thread with many has ended since; the others have taken memory between the two looks.
        (90_000, 4000, 5000, 1000),
        # One has ended between the two.
        (90_000, 80_000, 5000, None),
        (-1, -1, -1, None),
    ],
)
def test_what_a_process_did_between_looks_is_known_where_threads_have_ended_before(
    before: int, first: int, second: int, found: int | None
) -> None:
    assert grown(before, first, second) == found
