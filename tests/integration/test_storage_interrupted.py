"""Storage that is killed or stopped at every point: no torn file, no way back for ``latest``."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from everstep_agent.storage.backends.folder import FolderBackend
from everstep_agent.storage.formats.records import StepKey, key_of
from everstep_agent.storage.worker.messages import FillCopy
from everstep_agent.storage.worker.rank_files import describe_file, fill_copy, write_copy
from everstep_agent.storage.worker.step_listing import find_whole_step, list_steps
from everstep_agent.storage.worker.step_publication import move_latest
from integration.storage_files import (
    content,
    ended,
    interrupted,
    order,
    publication,
    stopped_or_ended,
)

_LOCK_S = 0.02


def _depot(folder: Path) -> FolderBackend:
    return FolderBackend(str(folder), "demo", _LOCK_S)


def _write(folder: Path, generation: int, step: int) -> None:
    folder.mkdir(exist_ok=True)
    memory = memoryview(content(step))
    write_copy(_depot(folder), order(str(folder), generation, step), memory, lambda n: None)


def _publish(folder: Path, generation: int, key: StepKey | None, *keep: StepKey) -> str:
    wanted = publication(str(folder), generation, key, keep)
    return move_latest(_depot(folder), wanted).reason


def _read(folder: Path, key: StepKey) -> bytes:
    wanted = order(str(folder), key.generation, key.step)
    memory = bytearray(wanted.size_bytes)
    request = FillCopy(wanted.location, key, 0, wanted.root_hash)
    fill_copy(_depot(folder), request, memoryview(memory), lambda n: None)
    return bytes(memory)


def _latest(folder: Path) -> tuple[int, StepKey]:
    found = json.loads((folder / "demo/latest").read_text())
    target = found["target"]
    return found["generation"], StepKey(target["generation"], target["step"])


def test_what_is_left_of_a_beginning_is_taken_away_once_there_is_one(tmp_path: Path) -> None:
    _write(tmp_path, 1, 3)
    mine = tmp_path / "demo/gen-1"
    left = mine / ".began.json.0123456789abcdef.tmp"
    left.touch()
    _depot(tmp_path).move_latest(1, lambda *_: None)
    assert left.exists()  # another member may be about to name it
    _depot(tmp_path).write_beginning(1, b"{}", replaces=False)
    _depot(tmp_path).move_latest(1, lambda *_: None)
    assert [path.name for path in mine.iterdir() if path.is_file()] == ["began.json"]


def test_members_that_begin_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    _write(tmp_path, 1, 3)

    def begin(number: int) -> None:
        for generation in range(2, 22):
            content_ = b"%d" % number
            _depot(tmp_path).write_beginning(generation, content_, replaces=False)
            _depot(tmp_path).move_latest(generation, lambda *_: None)

    with ThreadPoolExecutor(4) as members:
        list(members.map(begin, range(4)))
    assert list(tmp_path.rglob("*.tmp")) == []


def test_a_copy_is_read_back_with_the_bytes_between_its_shards(tmp_path: Path) -> None:
    _write(tmp_path, 1, 3)
    assert _read(tmp_path, StepKey(1, 3)) == content(3)


def test_a_writer_that_is_killed_at_any_point_leaves_a_whole_file_or_none(tmp_path: Path) -> None:
    key = StepKey(1, 3)
    _write(tmp_path / "whole", 1, 3)
    name = "demo/gen-1/step-3/rank-0.safetensors"
    whole = (tmp_path / "whole" / name).read_bytes()
    at = 0
    while True:
        at += 1
        folder = tmp_path / str(at)
        folder.mkdir()
        memory, wanted = memoryview(content(3)), order(str(folder), 1, 3)
        pid = interrupted(
            lambda beat: write_copy(_depot(folder), wanted, memory, beat),  # noqa: B023
            at,
            signal.SIGKILL,
        )
        code = ended(pid)
        data = folder / name
        assert not data.exists() or data.read_bytes() == whole
        description = describe_file(_depot(folder), key, 0)
        assert description is None or data.exists()
        if code == 0:
            break
        assert code == -signal.SIGKILL
        # Whoever comes next finishes, and leaves nothing of it behind.
        _write(folder, 1, 3)
        assert _read(folder, key) == content(3)
        assert [path for path in folder.rglob("*.tmp") if "safetensors" in path.name] == []
    assert at > 20


def test_a_publisher_that_is_killed_at_any_point_leaves_latest_on_a_whole_step(
    tmp_path: Path,
) -> None:
    old, new = StepKey(1, 1), StepKey(1, 2)
    at = 0
    while True:
        at += 1
        folder = tmp_path / str(at)
        for step in (1, 2):
            _write(folder, 1, step)
        _publish(folder, 1, old)
        wanted = publication(str(folder), 1, new, (old, new))
        code = ended(
            interrupted(
                lambda beat: move_latest(_depot(folder), wanted),  # noqa: B023
                at,
                signal.SIGKILL,
            )
        )
        _, target = _latest(folder)
        assert target in (old, new)
        assert find_whole_step(_depot(folder), target) is not None
        if code == 0:
            break
        _publish(folder, 1, new, old, new)
        assert _latest(folder) == (1, new)
    assert at > 20


def test_a_publisher_that_is_cut_off_stopped_and_wakes_up_at_any_point_changes_nothing(
    tmp_path: Path,
) -> None:
    common, abandoned, later = StepKey(1, 1), StepKey(1, 2), StepKey(2, 2)
    at = 0
    while True:
        at += 1
        folder = tmp_path / str(at)
        for step in (1, 2):
            _write(folder, 1, step)
        _publish(folder, 1, common)
        wanted = publication(str(folder), 1, abandoned, (common, abandoned))
        pid = interrupted(
            lambda beat: move_latest(_depot(folder), wanted),  # noqa: B023
            at,
            signal.SIGSTOP,
        )
        stopped = stopped_or_ended(pid)
        # The new generation goes back to the common step, and on from there.
        _publish(folder, 2, common)
        assert _latest(folder) == (2, common)
        woken = at % 2 == 0
        if stopped and woken:
            os.kill(pid, signal.SIGCONT)
            ended(pid)
            assert _latest(folder) == (2, common)
        _write(folder, 2, 2)
        _publish(folder, 2, later, common, later)
        if stopped and not woken:
            os.kill(pid, signal.SIGCONT)
            ended(pid)
        assert _latest(folder) == (2, later)
        seen = list_steps(_depot(folder), None)
        assert seen.latest is not None
        assert seen.latest.target == later
        # What was abandoned stays where it may have become complete: nothing newer is removed.
        assert {common, later} <= {key_of(stored) for stored in seen.steps}
        if not stopped:
            break
    assert at > 20


def test_a_publisher_that_wakes_up_while_it_removes_steps_leaves_what_is_needed_now(
    tmp_path: Path,
) -> None:
    needed, kept = StepKey(1, 1), (StepKey(1, 2), StepKey(1, 3))
    at = 0
    while True:
        at += 1
        folder = tmp_path / str(at)
        for step in (1, 2, 3):
            _write(folder, 1, step)
            _publish(folder, 1, StepKey(1, step))
        wanted = publication(str(folder), 1, kept[1], kept)
        pid = interrupted(
            lambda beat: move_latest(_depot(folder), wanted),  # noqa: B023
            at,
            signal.SIGSTOP,
        )
        stopped = stopped_or_ended(pid)
        if not stopped:
            assert find_whole_step(_depot(folder), needed) is None
            break
        if (
            find_whole_step(_depot(folder), needed) is not None
        ):  # else no controller would choose it
            _publish(folder, 2, needed)
            os.kill(pid, signal.SIGCONT)
            ended(pid)
            assert _latest(folder) == (2, needed)
            assert find_whole_step(_depot(folder), needed) is not None
        else:
            os.kill(pid, signal.SIGKILL)
            ended(pid)
            _publish(folder, 2, kept[0])
        assert list(folder.rglob(".removed")) == []
    assert at > 20


def test_a_step_with_what_a_user_put_there_is_not_removed(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        _write(tmp_path, 1, step)
        _publish(tmp_path, 1, StepKey(1, step))
    (tmp_path / "demo/gen-1/step-1/notes.txt").write_text("the good one")
    _publish(tmp_path, 1, StepKey(1, 3), StepKey(1, 2), StepKey(1, 3))
    assert find_whole_step(_depot(tmp_path), StepKey(1, 1)) is not None


def test_a_step_that_loses_a_file_is_no_whole_step_any_more(tmp_path: Path) -> None:
    _write(tmp_path, 1, 1)
    _publish(tmp_path, 1, StepKey(1, 1))
    assert list_steps(_depot(tmp_path), None).latest is not None
    (tmp_path / "demo/gen-1/step-1/rank-0.safetensors").write_bytes(b"short")
    seen = list_steps(_depot(tmp_path), None)
    assert (seen.latest, seen.steps, seen.newest_generation) == (None, (), 1)
