"""The folder and the variables by which ranks can be read while they hang."""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.launch.inspection.rank_files import (
    ListedRank,
    Marker,
    RankFiles,
    listed_ranks,
    marker,
    rank_notes,
    rank_variables,
)

_FOLDER = Path("/tmp/everstep-ranks-x")


def test_what_the_user_has_not_set_is_set() -> None:
    added = rank_variables({}, _FOLDER, 77)
    assert added.pop("PYTHONPATH").endswith("/interpreter")
    assert added == {
        "EVERSTEP_RANK_FILES": str(_FOLDER),
        "EVERSTEP_RANK_TRACER": "77",
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_FR_DUMP_TEMP_FILE": f"{_FOLDER}/dump-",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    }


@pytest.mark.parametrize(
    ("given", "left_alone"),
    [
        # Torch would believe ours rather than the user's older name for the same.
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"),
        ("TORCH_FR_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"),
        ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"),
        ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"),
        ("TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT"),
    ],
)
def test_what_the_user_has_set_by_whichever_name_stays(given: str, left_alone: str) -> None:
    added = rank_variables({given: "0"}, _FOLDER, 77)
    assert given not in added
    assert left_alone not in added


def test_the_user_s_own_path_follows_and_an_empty_one_adds_no_working_folder() -> None:
    ours = rank_variables({}, _FOLDER, 77)["PYTHONPATH"]
    assert rank_variables({"PYTHONPATH": "/own:/more"}, _FOLDER, 77)["PYTHONPATH"] == (
        f"{ours}:/own:/more"
    )
    assert rank_variables({"PYTHONPATH": ""}, _FOLDER, 77)["PYTHONPATH"] == ours


@pytest.mark.parametrize("name", ["TORCH_NCCL_ENABLE_TIMING", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"])
def test_timing_and_timeouts_are_the_user_s(name: str) -> None:
    assert name not in rank_variables({}, _FOLDER, 77)


def test_only_settings_that_matter_are_worth_a_word() -> None:
    assert rank_notes({}) == []
    assert rank_notes({"TORCH_FR_BUFFER_SIZE": "500"}) == []
    assert rank_notes({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "480"}) == []
    assert rank_notes({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "soon"}) == []
    (off,) = rank_notes({"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"})
    assert off.startswith("TORCH_NCCL_TRACE_BUFFER_SIZE=0: torch records no collectives")
    (early,) = rank_notes({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "60"})
    assert "core.hang_patience_s" in early


def test_the_folder_is_the_user_s_alone_short_enough_for_sockets_and_removed(
    tmp_path: Path,
) -> None:
    deep = tmp_path / ("a-scheduler-s-folder-for-this-job-" * 3)
    deep.mkdir()
    files = RankFiles.make(str(deep))
    assert files.folder.parent == Path("/tmp")
    assert files.folder.stat().st_mode & 0o777 == 0o700
    (files.folder / "77.json").write_text("{}")
    files.remove()
    assert not files.folder.exists()
    assert list(deep.iterdir()) == []


def test_files_that_take_too_much_are_removed_the_largest_first(tmp_path: Path) -> None:
    files = RankFiles(tmp_path)
    for name, size in (("dump-0", 600), ("dump-1", 700), ("77.json", 30)):
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / "elsewhere").symlink_to("/etc/passwd")
    files.prune(1000)
    assert {path.name for path in tmp_path.iterdir()} == {"dump-0", "77.json", "elsewhere"}


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a folder with a path short enough for the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="es") as name:
        yield Path(name)


def test_what_a_killed_launcher_left_is_removed_and_what_is_in_use_is_not(place: Path) -> None:
    used, foreign = RankFiles.make(str(place)), place / "everstep-ranks-link"
    abandoned, young = place / "everstep-ranks-old", place / "everstep-ranks-young"
    for folder in (abandoned, young):
        folder.mkdir()
        (folder / "dump-0").write_text("left")
    foreign.symlink_to(place)
    hour_ago = time.time() - 3600
    for folder in (used.folder, abandoned):
        os.utime(folder, (hour_ago, hour_ago))
    new = RankFiles.make(str(place))
    left = {path.name for path in place.iterdir()}
    assert left == {used.folder.name, young.name, foreign.name, new.folder.name}
    used.remove()
    new.remove()


@pytest.mark.parametrize(
    "content", ["", "[]", "[" * 5000, "null", '{"stacks": 1}', '{"why": "x"}', "\udc80"]
)
def test_a_marker_that_is_none_says_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "77.json").write_bytes(content.encode(errors="surrogateescape"))
    assert marker(tmp_path, 77) == Marker()


def test_a_marker_s_words_are_printable_and_short(tmp_path: Path) -> None:
    (tmp_path / "77.json").write_text('{"stacks": true, "why": "\\u001b[2J' + "x" * 900 + '"}')
    found = marker(tmp_path, 77)
    assert found.stacks
    assert found.why.startswith("\\x1b[2Jxx")
    assert len(found.why) == 300


def test_ranks_are_listed_by_their_processes(place: Path) -> None:
    files = RankFiles(place)
    files.list_ranks("llama", 16, {8: 4711, 9: 4712})
    assert listed_ranks(place) == {
        4711: ListedRank(8, "llama", 16),
        4712: ListedRank(9, "llama", 16),
    }


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "[" * 5000,
        '{"job": 1}',
        '{"job": "x", "world_size": 2, "pids": [1]}',
        '{"job": "x", "world_size": Infinity, "pids": {}}',
    ],
)
def test_a_list_of_ranks_that_is_none_names_none(place: Path, content: str) -> None:
    (place / "ranks.json").write_text(content)
    assert listed_ranks(place) == {}
