"""Which processes of a node are ranks, and what is told of one in words."""

from pathlib import Path

from everstep.hang_command import in_words, local_ranks
from everstep.launch.hangs.rank_files import RankFiles
from everstep_common.hangs.rank_report import (
    Blind,
    EvidenceSource,
    GroupReport,
    Operation,
    OperationState,
    ProcessFacts,
    ProcessState,
    RankHangReport,
)


def process(proc: Path, pid: int, group: int, **environ: str) -> None:
    """Write what /proc has of a process."""
    folder = proc / str(pid)
    folder.mkdir()
    numbers = ["0"] * 40
    numbers[1] = str(group)
    (folder / "stat").write_text(f"{pid} (python) S {' '.join(numbers)}\n")
    (folder / "status").write_text("Uid:\t1000\t1000\t1000\t1000\n")
    content = "".join(f"{name}={value}\0" for name, value in environ.items())
    (folder / "environ").write_text(content)


def test_ranks_are_those_that_their_launcher_lists_standbys_of_before_among_them(
    tmp_path: Path,
) -> None:
    proc, files = tmp_path / "proc", tmp_path / "files"
    for folder in (proc, files):
        folder.mkdir()
    mark = {"EVERSTEP_RANK_FILES": str(files)}
    process(proc, 10, 10, **mark, EVERSTEP_GENERATION="1", EVERSTEP_JOB="old", RANK="0")
    process(proc, 11, 11, **mark)  # a standby that has become a rank shows nothing of it
    process(proc, 12, 12, **mark)  # one that waits
    process(proc, 13, 10, **mark, EVERSTEP_GENERATION="1", RANK="0")  # a data loader
    process(proc, 14, 14)
    RankFiles(files).list_ranks("llama", 16, {8: 10, 9: 11, 10: 14})
    found = [(one.rank, one.pid, one.job, one.world_size, one.uid) for one in local_ranks(proc)]
    assert found == [(8, 10, "llama", 16, 1000), (9, 11, "llama", 16, 1000)]


def test_under_torchrun_ranks_are_known_by_their_variables(tmp_path: Path) -> None:
    mark = {"EVERSTEP_RANK_FILES": "/nowhere", "EVERSTEP_GENERATION": "2", "WORLD_SIZE": "4"}
    process(tmp_path, 20, 20, **mark, EVERSTEP_JOB="llama", RANK="3")
    process(tmp_path, 21, 20, **mark, EVERSTEP_JOB="llama", RANK="3")
    process(tmp_path, 22, 22, **mark, EVERSTEP_JOB="llama", RANK="x")
    (found,) = local_ranks(tmp_path)
    assert (found.rank, found.pid, found.job, found.folder) == (3, 20, "llama", "/nowhere")


def test_a_report_is_told_in_words() -> None:
    pending = Operation(6, "all_reduce", "4 Float", OperationState.SCHEDULED)
    group = GroupReport("default_pg", "0-3", 4, 6, 5, pending_count=1, pending=(pending,))
    state = ProcessFacts(
        state=ProcessState.SLEEPING,
        wchan="futex_wait",
        gil_held=True,
        answers_ping=False,
        python_stack=("train.py:8 step", "train.py:9 main"),
    )
    blind = Blind(EvidenceSource.NATIVE_STACK, "kernel.yama.ptrace_scope is 3")
    told = in_words(RankHangReport(rank=2, pid=77, groups=(group,), process=state, blind=(blind,)))
    assert told.splitlines() == [
        "rank 2 (process 77): sleeping in futex_wait and holds the GIL and does not answer",
        "  waits in all_reduce 6 of default_pg",
        "  at train.py:8 step < train.py:9 main",
        "  unknown: native_stack: kernel.yama.ptrace_scope is 3",
    ]
