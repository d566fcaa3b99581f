"""Folders in which dumps lie as they do in the field: by host, with dates, and of other hangs."""

import json
from pathlib import Path

import pytest

from everstep_common.hangs.command import main
from everstep_common.hangs.dumps.dump_files import dump_name
from everstep_common.hangs.dumps.folder import FolderError, read_folder
from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.reports.verdict import Confidence

_SKIP = Path(__file__).parents[3] / "fixtures/hangs/gloo_skip"
_HOUR_NS = 3600 * 10**9


def dumped(source: Path, rank: int, later_ns: int = 0) -> str:
    """Return the dump of a rank, as if it had hung later."""
    dump = json.loads((source / f"dump_{rank}.json").read_bytes())
    for entry in dump["entries"]:
        entry["time_created_ns"] = int(entry["time_created_ns"]) + later_ns
    return json.dumps(dump)


def named(folder: Path) -> tuple[list[int], Confidence]:
    found = read_folder(folder)
    verdict = judge(found.reports.values(), found.world_size)
    return [one.rank for one in verdict.culprits], verdict.confidence


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_0", 0),
        ("rank_17.pickle", 17),
        ("dump_3.json", 3),
        ("3.json", 3),
        ("exit-12", 12),
        ("rank_3_2026-11-28", 3),
        ("rank_3_2026-11-28T10:12:00.json", 3),
        ("rank3.20261128-101200.pkl", 3),
        ("nccl_trace_rank_5_1764324720", 5),
        ("dump_3_20261128_101200.json", 3),
        ("2026-11-28_dump_4.json", 4),
        ("20261128T101200Z-7.trace", 7),
        ("gpu12-rank_9_1.json", 9),
        ("fr_rank-2.json.1764324720123456789", 2),
        ("rank_202611", 202611),
    ],
)
def test_the_rank_is_found_whatever_date_a_name_has(name: str, rank: int) -> None:
    found = dump_name(name)
    assert found is not None
    assert found.rank == rank


@pytest.mark.parametrize("name", ["train.log", "2026-11-28", "hosts", "20261128_101200.json"])
def test_a_name_without_a_rank_is_of_none(name: str) -> None:
    assert dump_name(name) is None


def test_dumps_in_a_folder_for_each_host_are_read_with_its_name(tmp_path: Path) -> None:
    for rank in range(4):
        host = tmp_path / f"gpu-{rank // 2}"
        host.mkdir(exist_ok=True)
        (host / f"rank_{rank}_2026-11-28T10:12:0{rank}").write_text(dumped(_SKIP, rank))
    found = read_folder(tmp_path)
    assert [found.reports[rank].node for rank in range(4)] == ["gpu-0", "gpu-0", "gpu-1", "gpu-1"]
    verdict = judge(found.reports.values(), found.world_size)
    assert [(one.rank, one.node) for one in verdict.culprits] == [(2, "gpu-1")]


def test_folders_beside_dumps_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    for rank in range(4):
        (tmp_path / f"rank_{rank}").write_text(dumped(_SKIP, rank))
        (tmp_path / "before" / f"rank_{rank}").write_text("no dump")
    assert read_folder(tmp_path).files == 4


def test_the_dump_that_a_culprit_left_at_another_hang_does_not_hide_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 2 is stopped and leaves no dump; the one that lies there is an hour old."""
    (tmp_path / "dump_2.json").write_text(dumped(_SKIP, 0, -_HOUR_NS).replace('"rank": 0', ""))
    for rank in (0, 1, 3):
        (tmp_path / f"dump_{rank}.json").write_text(dumped(_SKIP, 0))
    assert named(tmp_path)[0] == [2]
    main([str(tmp_path)])
    told = capsys.readouterr().out
    assert "dump_2.json: its newest operation is of" in told
    assert "60 minutes before those of most: it is of another hang" in told


def test_of_two_hangs_in_one_folder_the_one_of_which_more_ranks_tell_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(4):
        (tmp_path / f"rank_{rank}_2026-11-28").write_text(dumped(_SKIP, rank))
        if rank != 1:
            (tmp_path / f"rank_{rank}_2026-11-27").write_text(dumped(_SKIP, rank, -_HOUR_NS))
    assert named(tmp_path)[0] == [2]
    main([str(tmp_path)])
    told = capsys.readouterr().out
    assert "Left out, for they are of another hang" in told
    assert "rank_3_2026-11-27" in told


@pytest.mark.parametrize("size", [2, 3])
def test_a_number_of_ranks_that_leaves_out_a_dump_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    """It would exclude the culprit, and name who waits for it."""
    for rank in range(4):
        (tmp_path / f"rank_{rank}").write_text(dumped(_SKIP, rank))
    with pytest.raises(FolderError, match=f"--world-size {size}, and rank {size} has a dump"):
        read_folder(tmp_path, world_size=size)
    assert main([str(tmp_path), "--world-size", str(size)]) == 2
    assert "leave it out" in capsys.readouterr().err
    assert read_folder(tmp_path, world_size=4).world_size == 4


@pytest.mark.parametrize("last", ["missing", "empty", "of no dump"])
def test_a_gloo_dump_that_names_the_ranks_of_all_says_how_many_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], last: str
) -> None:
    for rank in range(3):
        dump = json.loads(dumped(_SKIP, rank))
        dump["pg_config"][""]["ranks"] = "[0, 1, 2, 3]"
        (tmp_path / f"rank_{rank}").write_text(json.dumps(dump))
    if last == "empty":
        (tmp_path / "rank_3").touch()
    if last == "of no dump":
        (tmp_path / "core.3").write_text("a core")
    assert read_folder(tmp_path).world_size == 4
    assert named(tmp_path)[0] == [2]
    assert main([str(tmp_path), "--world-size", "4"]) == 0
    assert main([str(tmp_path), "--world-size", "8"]) == 2
    assert "--world-size 8, and most dumps tell of 4 ranks" in capsys.readouterr().err
