"""Whom a sweeper counts to a launcher that is gone, and whom it never does."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from everstep.launch.processes.sweeper import (
    Process,
    end_group,
    groups_of,
    identify,
    kill,
    marked,
    place,
    remains,
    running,
    within,
)

_RANK = Process(pid=10, ticks=100, parent=5, group=10, session=1)
_OTHERS = Process(pid=2, ticks=1, parent=1, group=2, session=2)


def table(*processes: Process) -> dict[int, Process]:
    """Return what runs."""
    return {process.pid: process for process in (*processes, _OTHERS)}


def test_who_has_the_mark_is_ended_with_all_that_descends_from_it() -> None:
    marked_one = Process(pid=20, ticks=200, parent=1, group=20, session=20)
    child = Process(pid=21, ticks=201, parent=20, group=21, session=21)
    grandchild = Process(pid=22, ticks=202, parent=21, group=21, session=21)
    assert remains(table(marked_one, child, grandchild), {}, {20}, set()) == {20, 21, 22}


def test_who_is_in_the_group_of_a_rank_is_ended_without_a_mark() -> None:
    orphan = Process(pid=11, ticks=150, parent=1, group=10, session=1)
    assert remains(table(orphan), {10: _RANK}, set(), set()) == {11}


def test_who_is_in_the_session_of_a_rank_s_child_is_ended_without_a_mark() -> None:
    leader = Process(pid=12, ticks=150, parent=10, group=12, session=12)
    orphan = Process(pid=13, ticks=151, parent=1, group=13, session=12)
    assert remains(table(orphan), {12: leader}, set(), set()) == {13}


def test_a_later_process_of_a_known_number_is_somebody_else() -> None:
    later = Process(pid=10, ticks=900, parent=1, group=10, session=10)
    its_child = Process(pid=11, ticks=901, parent=10, group=10, session=10)
    assert remains(table(later, its_child), {10: _RANK}, set(), set()) == set()


def test_who_was_there_before_the_rank_is_not_of_its_group() -> None:
    earlier = Process(pid=9, ticks=99, parent=1, group=10, session=1)
    assert remains(table(earlier), {10: _RANK}, set(), set()) == set()


def test_what_is_spared_is_spared_with_all_that_descends_from_it() -> None:
    foreign = Process(pid=30, ticks=150, parent=10, group=30, session=1)
    its_child = Process(pid=31, ticks=151, parent=30, group=31, session=1)
    assert remains(table(_RANK, foreign, its_child), {10: _RANK}, set(), {30}) == {10}


def test_the_session_of_the_launcher_is_not_its_ranks() -> None:
    shell = Process(pid=1, ticks=10, parent=0, group=1, session=1)
    editor = Process(pid=40, ticks=500, parent=1, group=40, session=1)
    assert remains(table(shell, editor, _RANK), {10: _RANK}, set(), set()) == {10}


def test_only_the_whole_mark_counts(tmp_path: Path) -> None:
    for pid, environ in {
        2: b"A=1\0EVERSTEP_LAUNCHER=abc\0B=2\0",
        3: b"EVERSTEP_LAUNCHER=abcd\0",
        4: b"X=EVERSTEP_LAUNCHER=abc\0",
        5: b"",
    }.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "environ").write_bytes(environ)
    processes = [Process(pid, 1, 1, pid, pid) for pid in (2, 3, 4, 5, 6)]
    assert marked(processes, "abc", str(tmp_path)) == {2}


def test_a_job_that_a_rank_has_submitted_is_in_groups_of_its_own(tmp_path: Path) -> None:
    def put(pid: int, *groups: str) -> None:
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text("".join(f"{line}\n" for line in groups))

    put(10, "4:memory:/slurm/job_1", "0::/system.slice/job_1")
    put(11, "4:memory:/slurm/job_1", "0::/system.slice/job_1/everstep-10-gen-1")
    put(12, "4:memory:/slurm/job_1", "0::/system.slice/job_12")
    put(13, "4:memory:/slurm/job_2", "0::/system.slice/job_1")
    put(14, "0::/system.slice/job_1")
    put(20, "0::/")
    put(21, "0::/anything")
    own, top, proc = place(10, str(tmp_path)), place(20, str(tmp_path)), str(tmp_path)
    assert [within(own, pid, proc) for pid in range(10, 16)] == [True, True] + [False] * 4
    assert within(top, 21, proc)


def test_a_name_with_blanks_and_brackets_is_read_past_and_a_zombie_is_none(tmp_path: Path) -> None:
    rest = "5 10 1" + " 0" * 15 + " 100 0"
    for pid, state in ((10, "S"), (11, "Z")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a ) R 1 (b) {state} {rest}")
    assert running(str(tmp_path)) == {10: _RANK}


def test_a_process_is_killed_only_if_it_is_the_one_that_was_seen() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        seen = identify(process.pid)
        assert seen is not None
        assert seen.parent == os.getpid()
        assert kill(seen._replace(ticks=seen.ticks - 1))
        assert identify(process.pid) == seen
        assert kill(seen)
        assert process.wait(timeout=20) == -signal.SIGKILL
        assert kill(seen)
    finally:
        process.kill()
        process.wait()


def test_a_group_is_removed_where_the_kernel_has_no_word_to_end_it(tmp_path: Path) -> None:
    (tmp_path / "everstep-7-gen-1").mkdir()
    (tmp_path / "everstep-77-gen-1").mkdir()
    assert groups_of("") == []
    found = groups_of(f"{tmp_path}/everstep-7-gen-")
    assert found == [f"{tmp_path}/everstep-7-gen-1"]
    assert end_group(found[0])
    assert [one.name for one in tmp_path.iterdir()] == ["everstep-77-gen-1"]
