"""Hangs of two ranks of NCCL as they were recorded on an H100 with torch 2.11 and NCCL 2.28.9.

Both ranks had one GPU, and NCCL took them for those of two nodes. Beside the dumps are reports of
the same looks by a reader that could not read NCCL's recorder: processes and stacks alone.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from everstep_common.codec import from_json
from everstep_common.hangs.dumps.folder import read_folder
from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.ras_answer import RasError, read_json, read_text
from everstep_common.hangs.reports.rank_report import RankHangReport
from everstep_common.hangs.reports.verdict import Confidence, HangClass, HangVerdict

_FIXTURES = Path(__file__).parents[3] / "fixtures/hangs"
_FAULTS = ("nccl_sleep", "nccl_gil", "nccl_gpu", "nccl_skip", "nccl_recv")


def _of_recorder(recorded: str) -> list[RankHangReport]:
    return list(read_folder(_FIXTURES / recorded, world_size=2).reports.values())


def _of_process(recorded: str) -> list[RankHangReport]:
    paths = sorted((_FIXTURES / recorded / "processes").iterdir())
    return [from_json(RankHangReport, json.loads(path.read_text())) for path in paths]


def _whole(recorded: str) -> list[RankHangReport]:
    """Return the reports as a reader makes them of both."""
    both = zip(_of_recorder(recorded), _of_process(recorded), strict=True)
    return [
        replace(one, process=seen.process, libraries=seen.libraries, node=seen.node)
        for one, seen in both
    ]


def _named(verdict: HangVerdict) -> tuple[HangClass, list[int]]:
    return verdict.kind, [one.rank for one in verdict.culprits]


@pytest.mark.parametrize(
    ("recorded", "by_dumps", "by_all"),
    [
        ("nccl_sleep", (HangClass.CPU_SIDE, [1]), (HangClass.CPU_SIDE, [1])),
        ("nccl_gil", (HangClass.CPU_SIDE, [1]), (HangClass.GIL_HELD, [1])),
        ("nccl_skip", (HangClass.DESYNC, [1]), (HangClass.DESYNC, [1])),
        # A kernel that spins on one GPU: torch does not tell which of them has not begun.
        ("nccl_gpu", (HangClass.FABRIC, []), (HangClass.FABRIC, [])),
        # Rank 1 waits for data that rank 0 never sends, and NCCL's recorder does not tell so yet.
        ("nccl_recv", (HangClass.CPU_SIDE, [1]), (HangClass.DESYNC, [])),
    ],
)
def test_who_holds_a_job_of_nccl_back_is_told_as_it_was(
    recorded: str, by_dumps: tuple[HangClass, list[int]], by_all: tuple[HangClass, list[int]]
) -> None:
    assert _named(judge(_of_recorder(recorded), 2)) == by_dumps
    assert _named(judge(_whole(recorded), 2)) == by_all


def test_a_rank_that_waits_for_its_gpu_in_any_line_is_not_named_for_where_it_stands() -> None:
    for recorded in _FAULTS:
        rank_0 = _of_process(recorded)[0].process
        assert rank_0.python_stack[0] == "hang_gpu_rank.py:53 train"  # a tensor's item()
        for reports in (_whole(recorded), _of_process(recorded)):
            assert 0 not in {one.rank for one in judge(reports, 2).culprits}


@pytest.mark.parametrize("recorded", ["nccl_sleep", "nccl_gpu", "nccl_skip", "nccl_recv"])
def test_without_any_recorder_nobody_is_named_for_standing_elsewhere(recorded: str) -> None:
    assert _named(judge(_of_process(recorded), 2)) == (HangClass.NO_WAIT, [])


def test_without_any_recorder_who_holds_the_gil_is_seen_to() -> None:
    verdict = judge(_of_process("nccl_gil"), 2)
    assert _named(verdict) == (HangClass.GIL_HELD, [1])
    assert verdict.confidence is Confidence.LIKELY


def test_what_nccl_s_watchdog_writes_at_a_timeout_names_who_did_not_come() -> None:
    folder = read_folder(_FIXTURES / "nccl_timeout", world_size=2)
    verdict = judge(folder.reports.values(), 2)
    assert _named(verdict) == (HangClass.CPU_SIDE, [1])
    report = folder.reports[0]
    (pending,) = report.groups[0].pending
    assert pending.frames[0] == "hang_gpu_rank.py:51 train"
    assert (report.timeout_ms, report.schema) == (10_000, "2.10")
    assert {one.name: one.version for one in report.libraries} == {"nccl": "2.28.9"}


def test_what_ras_says_of_a_job_that_lives_is_read() -> None:
    answer = (_FIXTURES / "nccl_ras/status.json").read_text()
    told = ("NCCL RAS 2.28.9: no rank is missing in 1 communicators",)
    assert read_json(answer, (795, 798)) == told
    with pytest.raises(RasError, match="another job"):
        read_json(answer, (1, 2))


def test_of_what_ras_says_in_words_the_telling_lines_are_kept() -> None:
    lines = read_text((_FIXTURES / "nccl_ras/status.txt").read_text())
    assert lines == (
        "NCCL RAS: 0 1 1 2 2 2 RUNNING MISMATCH",
        "NCCL RAS: #0-0 (9dc90460dc494d82) MISMATCH",
        "NCCL RAS: Communicator ranks have different Broadcast operation counts",
        "NCCL RAS: Rank 1 has launched up to operation 1 -- GPU 0 managed by process 798 on node"
        " 127.0.0.1",
        "NCCL RAS: Rank 0 has not launched any operations -- GPU 0 managed by process 795 on node"
        " 127.0.0.1",
    )
