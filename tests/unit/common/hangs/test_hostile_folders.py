"""Folders with files that mislead: names, garbage, what is no file, and thousands of them."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from everstep_common.hangs.command import main
from everstep_common.hangs.dumps.folder import Folder, read_folder
from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.reports.rank_report import EvidenceSource
from everstep_common.hangs.reports.verdict import Confidence, HangVerdict

_SKIP = Path(__file__).parents[3] / "fixtures/hangs/gloo_skip"
_RANKS = 4


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    for rank in range(_RANKS):
        (tmp_path / f"dump_{rank}.json").write_bytes((_SKIP / f"dump_{rank}.json").read_bytes())
    return tmp_path


def _judged(folder: Folder) -> HangVerdict:
    return judge(folder.reports.values(), folder.world_size)


@pytest.mark.parametrize("content", [b"\x7fELF", b"", b"{}", b"\x80\x02]."])
def test_a_file_of_another_kind_does_not_say_how_many_ranks_there_are(
    dumps: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (dumps / "core.4242").write_bytes(content)
    folder = read_folder(dumps)
    assert (folder.world_size, folder.left_out) == (_RANKS, ("core.4242",))
    assert _judged(folder).confidence is Confidence.CERTAIN
    assert main([str(dumps)]) == 0
    assert "Left out, for the job has 4 ranks: core.4242" in capsys.readouterr().out


def test_the_dump_of_a_last_rank_that_was_cut_off_still_counts_as_one(dumps: Path) -> None:
    (dumps / "dump_4.json").write_bytes(b'{"entries": [')
    folder = read_folder(dumps)
    assert (folder.world_size, folder.left_out) == (5, ())
    assert folder.reports[4].blind


def test_dumps_that_tell_how_many_ranks_there_are_are_believed_together(tmp_path: Path) -> None:
    for rank in range(3):
        members = "[0, 1, 2, 3, 4, 5, 6, 7]" if rank else str(list(range(90_000)))
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": members}}
        dump = {"version": "2.9", "pg_config": config, "entries": []}
        dump["pg_status"] = {"0": {"last_enqueued_collective": 3, "last_completed_collective": 3}}
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(dump, 2))
    assert read_folder(tmp_path).world_size == 8


def test_a_file_that_cannot_be_used_does_not_contradict_a_dump(dumps: Path) -> None:
    (dumps / "core.2").write_bytes(b"\x7fELF")
    folder = read_folder(dumps)
    assert [one.rank for one in _judged(folder).culprits] == [2]
    assert any("core.2" in one.reason for one in folder.reports[2].blind)


def test_two_dumps_that_contradict_each_other_are_both_no_evidence(dumps: Path) -> None:
    other = json.loads((dumps / "dump_2.json").read_bytes())
    other["entries"] = other["entries"][:1]
    (dumps / "x_2.json").write_text(json.dumps(other), encoding="utf-8")
    folder = read_folder(dumps)
    assert folder.reports[2].blind[0].source is EvidenceSource.IDENTITY
    assert _judged(folder).culprits == ()


def _no_file(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def _hole(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 * 2**30)


@pytest.mark.parametrize("make", [_no_file, _device, _link_to_itself, _hole])
def test_what_is_no_file_of_a_usual_size_is_told_and_not_read(
    dumps: Path, make: Callable[[Path], None]
) -> None:
    (dumps / "dump_0.json").unlink()
    make(dumps / "dump_0.json")
    folder = read_folder(dumps)
    assert folder.reports[0].blind
    assert {one.rank for one in _judged(folder).culprits} <= {2}


def test_a_name_with_control_characters_is_printed_without_them(
    dumps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (dumps / "dump_\x1b[31m77").write_bytes(b"{}")
    main([str(dumps)])
    assert "\x1b" not in capsys.readouterr().out


def test_many_files_that_are_no_dumps_take_no_more_than_a_few(dumps: Path) -> None:
    """What they may take together is bounded; the job's own dumps are read all the same."""
    first = dumps / "hostile_100"
    first.write_bytes(b"(" * 3_000_000)
    for number in range(101, 200):
        (dumps / f"hostile_{number}").hardlink_to(first)
    folder = read_folder(dumps, shared_operations=1_000_000)
    assert (folder.world_size, len(folder.left_out)) == (_RANKS, 100)
    assert [one.rank for one in _judged(folder).culprits] == [2]


def test_a_dump_that_is_cut_off_anywhere_names_nobody_else(dumps: Path) -> None:
    whole = pickle.dumps(json.loads((dumps / "dump_1.json").read_bytes()), 2)
    (dumps / "dump_1.json").unlink()
    for end in range(0, len(whole), max(1, len(whole) // 60)):
        (dumps / "dump_1").write_bytes(whole[:end])
        named = {one.rank for one in _judged(read_folder(dumps)).culprits}
        assert named <= {2}
