"""Which ends the kernel's counters of its control group explain."""

import signal
from pathlib import Path

import pytest

from everstep.launch.processes.memory_kills import MemoryKills
from everstep.launch.processes.rank_failure import RankEnd, RankFailure

UNIFIED = "31 30 0:27 / {top} rw - cgroup2 cgroup2 rw\n"
FIRST = (
    "30 20 0:26 / {top}/pids rw - cgroup cgroup rw,pids\n"
    "31 20 0:27 / {top} rw - cgroup cgroup rw,memory\n"
)
CONTAINER = "31 30 0:27 /docker/77 {top} rw - cgroup cgroup rw,memory\n"


def proc(folder: Path, cgroup: str, mounts: str) -> Path:
    """Return a /proc/self whose control groups are mounted in a folder."""
    (folder / "cgroup").write_text(cgroup)
    (folder / "mountinfo").write_text(mounts.format(top=folder / "top"))
    return folder


def write(path: Path, text: str) -> Path:
    """Write a file of a group."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def end(code: int = -signal.SIGKILL, *lines: str) -> RankFailure:
    """Return the end of a rank."""
    return RankFailure.of(
        1, RankEnd(rank=3, code=code, core_dumped=False, at_boot_ns=1, last_lines=lines)
    )


@pytest.mark.parametrize(
    ("cgroup", "mounts", "counter", "limit"),
    [
        ("0::/job/step\n", UNIFIED, "job/step/memory.events.local", "job/step/memory.max"),
        ("0::/job/step\n", UNIFIED, "job/memory.events", "job/memory.max"),
        (
            "5:pids:/x\n4:memory:/job\n0::/\n",
            FIRST,
            "job/memory.oom_control",
            "job/memory.limit_in_bytes",
        ),
        ("4:memory:/docker/77\n", CONTAINER, "memory.oom_control", "memory.limit_in_bytes"),
    ],
)
def test_each_kill_that_the_group_counts_explains_one_end(
    tmp_path: Path, cgroup: str, mounts: str, counter: str, limit: str
) -> None:
    file = write(tmp_path / "top" / counter, "max 9\noom_kill 4\noom_group_kill 0\n")
    write(tmp_path / "top" / limit, str(3 << 29))
    kills = MemoryKills(proc(tmp_path, cgroup, mounts))
    assert kills.explain(end()).kind == "killed"
    file.write_text("max 9\noom_kill 5\noom_group_kill 0\n")
    killed = kills.explain(end())
    assert killed.kind == "host_memory"
    assert killed.exception == (
        "the kernel killed it because memory ran out: its control group may have 1.5 GiB"
    )
    assert kills.explain(end()).kind == "killed"


@pytest.mark.parametrize("limit", ["max", str(0x7FFFFFFFFFFFF000), ""])
def test_without_a_limit_it_was_the_node_s_memory(tmp_path: Path, limit: str) -> None:
    file = write(tmp_path / "top/memory.events", "oom_kill 0\n")
    write(tmp_path / "top/memory.max", limit)
    kills = MemoryKills(proc(tmp_path, "0::/\n", UNIFIED))
    file.write_text("oom_kill 1\n")
    assert kills.explain(end()).exception == "the kernel killed it because memory ran out"


def test_what_a_generation_before_has_lost_explains_no_end(tmp_path: Path) -> None:
    file = write(tmp_path / "top/memory.events", "oom_kill 0\n")
    kills = MemoryKills(proc(tmp_path, "0::/\n", UNIFIED))
    file.write_text("oom_kill 2\n")
    kills.begin()
    assert kills.explain(end()).kind == "killed"


def test_an_end_that_says_why_itself_is_not_explained(tmp_path: Path) -> None:
    file = write(tmp_path / "top/memory.events", "oom_kill 0\n")
    kills = MemoryKills(proc(tmp_path, "0::/\n", UNIFIED))
    file.write_text("oom_kill 2\n")
    for failure in (end(1, "AssertionError: x"), end(-signal.SIGSEGV), end(-signal.SIGTERM)):
        assert kills.explain(failure) == failure


def test_a_data_loader_s_worker_that_was_killed_is_the_rank_s_reason(tmp_path: Path) -> None:
    file = write(tmp_path / "top/memory.events", "oom_kill 0\n")
    kills = MemoryKills(proc(tmp_path, "0::/\n", UNIFIED))
    said = (
        "Traceback (most recent call last):",
        '  File "train.py", line 1, in <module>',
        "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.",
    )
    assert kills.explain(end(1, *said)).kind == "killed"
    file.write_text("oom_kill 1\n")
    explained = kills.explain(end(1, *said))
    assert explained.kind == "host_memory"
    assert explained.exception == said[-1]


def test_a_shells_137_is_the_kernels_kill_where_one_was_counted(tmp_path: Path) -> None:
    file = write(tmp_path / "top/memory.events", "oom_kill 0\n")
    kills = MemoryKills(proc(tmp_path, "0::/\n", UNIFIED))
    own = "torch.OutOfMemoryError: CUDA out of memory."
    assert kills.explain(end(137, own)).kind == "device_memory"
    assert kills.explain(end(137)).kind == "killed"
    file.write_text("oom_kill 2\n")
    for lines in ((own,), ()):
        explained = kills.explain(end(137, *lines))
        assert explained.kind == "host_memory"
        assert explained.exception.startswith("the kernel killed it")


@pytest.mark.parametrize(
    ("cgroup", "mounts", "text"),
    [("", "", ""), ("0::/\n", UNIFIED, "oom_kill\n"), ("0::/\n", UNIFIED, "oom_kill x\n")],
)
def test_where_nothing_is_counted_nothing_is_explained(
    tmp_path: Path, cgroup: str, mounts: str, text: str
) -> None:
    write(tmp_path / "top/memory.events", text)
    assert MemoryKills(proc(tmp_path, cgroup, mounts)).explain(end()).kind == "killed"
    assert MemoryKills(tmp_path / "none").explain(end()).kind == "killed"
