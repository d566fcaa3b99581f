"""Which processes of a node are ranks, and what is told of one in words."""

from pathlib import Path

import pytest

from everstep.hang_command import in_words, local_ranks, main
from everstep.launch.inspection.rank_files import RankFiles
from everstep_common.hangs.command import main as judge_folder
from everstep_common.hangs.reports.rank_report import (
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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--pids", "12,x"], "expected numbers of processes, as 4711,4712, got '12,x'"),
        (["--job", "llama", "dumps"], "not understood: dumps; with --job no folder is read"),
    ],
)
def test_a_command_that_is_not_understood_says_what_was_expected(
    capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert told in " ".join(capsys.readouterr().err.split())


def test_the_help_is_the_same_with_a_job_and_without(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--job", "--help"]) == 0
    told = capsys.readouterr().out
    with pytest.raises(SystemExit):
        judge_folder(["--help"])
    assert capsys.readouterr().out == told


def test_a_job_that_does_not_run_here_is_told_with_what_to_type_next(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--job", "no-job-has-this-name"]) == 2
    told = capsys.readouterr().err
    assert "no rank of job 'no-job-has-this-name' runs on this node" in told
    assert "; 'everstep jobs' lists" in told or "; here are ranks of" in told


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
