import json
import os
import pickle
from pathlib import Path

import pytest

from everstep_common.codec import from_json, json_text
from everstep_common.hangs.command import main
from everstep_common.hangs.dumps.dump_values import BYTES_MAX
from everstep_common.hangs.dumps.folder import read_folder
from everstep_common.hangs.reports.rank_report import ProcessFacts, ProcessState, RankHangReport
from everstep_common.hangs.reports.verdict import HangClass, HangVerdict

_SKIP = Path(__file__).parents[3] / "fixtures/hangs/gloo_skip"


def _verdict(capsys: pytest.CaptureFixture[str]) -> HangVerdict:
    return from_json(HangVerdict, json.loads(capsys.readouterr().out))


def _copy(folder: Path, name: str = "dump_{}.json") -> None:
    for rank in range(4):
        target = folder / name.format(rank)
        target.write_bytes((_SKIP / f"dump_{rank}.json").read_bytes())


def test_a_person_is_told_who_how_and_through_whom(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(_SKIP)]) == 0
    told = capsys.readouterr().out
    assert told.startswith(
        "Rank 2 holds the job back: software desync, which is the program's fault and no node's. "
    )
    assert "The chain of waiting, the culprits last:" in told
    assert "GROUP       MEMBERS  OPERATION" in told
    (row,) = [line for line in told.splitlines() if line.startswith("  default_pg  0-3")]
    assert row.split("  ")[-3:] == ["ranks 0-3", "ranks 0,2", "-"]
    assert "4 of 4 ranks, 4 files" in told


@pytest.mark.parametrize("name", ["rank_{}", "nccl_trace_rank_{}", "{}.pickle", "fr.{}.pkl"])
def test_dumps_may_be_pickles_of_any_usual_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    for rank in range(4):
        dump = json.loads((_SKIP / f"dump_{rank}.json").read_bytes())
        (tmp_path / name.format(rank)).write_bytes(pickle.dumps(dump, 2))
    assert main([str(tmp_path), "--json"]) == 0
    assert [one.rank for one in _verdict(capsys).culprits] == [2]


def test_a_kept_report_of_a_rank_counts_as_its_dump(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _copy(tmp_path)
    stopped = RankHangReport(rank=2, process=ProcessFacts(ProcessState.STOPPED))
    (tmp_path / "dump_2.json").write_text(json_text(stopped), encoding="utf-8")
    assert main([str(tmp_path), "--json"]) == 0
    assert _verdict(capsys).kind is HangClass.FROZEN


def test_files_that_cannot_be_used_are_told_and_the_others_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _copy(tmp_path)
    with (tmp_path / "dump_1.json").open("wb") as file:
        file.truncate(10 * BYTES_MAX)
    (tmp_path / "dump_3.json").unlink()
    os.mkfifo(tmp_path / "dump_3.json")
    (tmp_path / "dump_4").mkdir()
    assert main([str(tmp_path), "--world-size", "4"]) in (0, 1)
    told = capsys.readouterr().out
    assert f"more than {BYTES_MAX:,}: not read" in told
    assert "no regular file" in told
    assert "2 of 4 ranks" in told


def test_a_link_to_itself_is_a_dump_that_cannot_be_read(tmp_path: Path) -> None:
    _copy(tmp_path)
    (tmp_path / "dump_3.json").unlink()
    (tmp_path / "dump_3.json").symlink_to("dump_3.json")
    assert "symbolic links" in read_folder(tmp_path).reports[3].blind[0].reason


def test_other_files_of_a_folder_are_left_out_by_their_prefix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _copy(tmp_path)
    (tmp_path / "core.4711").write_bytes(b"\x7fELF")
    assert main([str(tmp_path), "--prefix", "dump_", "--json"]) == 0
    assert _verdict(capsys).world_size == 4


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ((), "no dumps"),
        (("trace.log",), "no dumps"),
        (("rank_0",), "none of its 1 dumps can be used"),
    ],
)
def test_a_folder_without_a_dump_says_what_is_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: tuple[str, ...], told: str
) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert main([str(tmp_path)]) == 2
    assert told in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["/nowhere/at all"]) == 2
    assert "/nowhere/at all: no such folder; 'everstep hang --help'" in capsys.readouterr().err


def test_a_file_in_place_of_the_folder_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rank_0").touch()
    assert main([str(tmp_path / "rank_0")]) == 2
    assert "rank_0 is a file: name the folder that has all dumps" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "everstep hang --job NAME"),
        ([""], "name the folder of the dumps"),
        (["a", "b"], "not understood: b; one folder has the dumps of all ranks of one job"),
        (["a", "--jb", "x"], "--jb x; 'everstep hang --help' lists the options"),
        (["a", "--out", "b"], "--out goes with --job: everstep hang --job NAME --out FOLDER"),
    ],
)
def test_a_command_that_is_not_understood_names_the_next_one(
    capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert told in capsys.readouterr().err


def test_the_help_says_how_to_get_dumps_and_what_the_exit_codes_mean(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert "TORCH_NCCL_DUMP_ON_TIMEOUT=1" in told
    assert "Exit code: 0" in told
    assert "--job NAME" in told
    assert "--out FOLDER" in told
    assert "--pids" not in told


def test_where_one_of_several_silent_ranks_may_be_the_cause_it_is_not_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in (0, 1):
        (tmp_path / f"dump_{rank}.json").symlink_to(
            _SKIP.parent / "gloo_stop" / f"dump_{rank}.json"
        )
    assert main([str(tmp_path), "--world-size", "4"]) == 1
    assert "ranks 2-3" in capsys.readouterr().out
