"""Logs in a folder where others may write: other users' traps are not stepped into."""

import os
import stat
from pathlib import Path

import pytest

from everstep.launch.command_line.option_parser import UsageError
from everstep.launch.command_line.rank_streams import checked_folder
from everstep.launch.output.log_files import open_folder, open_log

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make another user's files")
_STRANGER = 54324


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder where everybody may write, and what is in it may be moved by anybody."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def _write(path: Path, content: bytes) -> None:
    with os.fdopen(open_log(path), "ab") as log:
        log.write(content)


def test_a_log_is_made_with_its_folders_and_appended_to(shared: Path) -> None:
    path = shared / "runs/gen-1/rank-0.log"
    _write(path, b"one ")
    _write(path, b"two")
    assert path.read_bytes() == b"one two"


def test_the_users_own_links_are_followed_absolute_and_relative(shared: Path) -> None:
    (shared / "disk").mkdir()
    (shared / "near").symlink_to("disk/../disk")
    (shared / "far").symlink_to(shared / "near")
    _write(shared / "far/gen-1/rank-0.log", b"here")
    assert (shared / "disk/gen-1/rank-0.log").read_bytes() == b"here"


def test_links_without_end_end(shared: Path) -> None:
    (shared / "a").symlink_to("b")
    (shared / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        open_folder(shared / "a/gen-1")


@needs_root
@pytest.mark.parametrize("place", ["runs", "runs/gen-1"])
def test_a_link_of_another_user_in_the_middle_is_refused(shared: Path, place: str) -> None:
    mine = shared.parent / "mine"
    mine.mkdir()
    link = shared / place
    link.parent.mkdir(exist_ok=True)
    link.parent.chmod(0o777)
    link.symlink_to(mine)
    os.lchown(link, _STRANGER, _STRANGER)
    with pytest.raises(PermissionError, match=f"link of another user \\(uid {_STRANGER}\\)"):
        open_log(shared / "runs/gen-1/rank-0.log")
    assert list(mine.iterdir()) == []


@needs_root
def test_a_folder_or_a_file_of_another_user_is_refused(shared: Path) -> None:
    (shared / "runs").mkdir()
    (shared / "rank-0.log").touch()
    for path in (shared / "runs", shared / "rank-0.log"):
        os.chown(path, _STRANGER, _STRANGER)
        with pytest.raises(PermissionError, match="belongs to another user"):
            open_log(path / "rank-0.log" if path.is_dir() else path)
    with pytest.raises(UsageError, match="belongs to another user"):
        checked_folder("--log-dir", shared / "runs")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder of a group, as computing centres give them to projects; root has made it."""
    folder = tmp_path / "project"
    folder.mkdir()
    folder.chmod(0o2775)
    return folder


def _of_a_member(path: Path, mode: int = 0o755) -> Path:
    path.mkdir(exist_ok=True)
    path.chmod(mode)
    os.chown(path, _STRANGER, -1)
    return path


def _led_by_a_member(link: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    link.symlink_to(target)
    os.lchown(link, _STRANGER, -1)


@needs_root
@pytest.mark.parametrize("within", [".", "team"])
def test_another_members_link_is_refused_in_a_folder_of_a_group_and_below(
    project: Path, within: str
) -> None:
    folder = project / within
    if folder != project:
        _of_a_member(folder)
    mine = project.parent / "mine"
    _led_by_a_member(folder / "runs", mine)
    with pytest.raises(PermissionError, match=f"link of another user \\(uid {_STRANGER}\\)"):
        open_log(folder / "runs/gen-1/rank-0.log")
    assert list(mine.iterdir()) == []


@needs_root
def test_a_log_goes_into_another_members_folder_but_not_into_that_members_file(
    project: Path,
) -> None:
    team = _of_a_member(project / "team", 0o2775)
    _write(team / "gen-1/rank-0.log", b"x")
    assert (team / "gen-1/rank-0.log").read_bytes() == b"x"
    (team / "rank-0.log").touch()
    os.chown(team / "rank-0.log", _STRANGER, -1)
    with pytest.raises(PermissionError, match=r"belongs to another user .* its group \(gid \d+\)"):
        open_log(team / "rank-0.log")


@needs_root
@pytest.mark.parametrize("mode", [0o755, 0o2775])
def test_a_link_of_the_user_to_whom_root_gave_the_folder_is_followed(
    tmp_path: Path, mode: int
) -> None:
    given = _of_a_member(tmp_path / "lab", mode)
    _led_by_a_member(given / "scratch", tmp_path / "disk")
    _write(given / "scratch/rank-0.log", b"here")
    assert (tmp_path / "disk/rank-0.log").read_bytes() == b"here"


def test_a_fifo_is_not_waited_for_with_a_reader_or_without(shared: Path) -> None:
    path = shared / "rank-0.log"
    os.mkfifo(path)
    with pytest.raises(OSError, match=r"No such device|not a regular file"):
        open_log(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(OSError, match="not a regular file"):
            open_log(path)
    finally:
        os.close(reader)


def test_a_last_link_is_refused_whoever_made_it(shared: Path) -> None:
    (shared / "rank-0.log").symlink_to(shared / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        open_log(shared / "rank-0.log")
    assert not (shared / "elsewhere").exists()


def test_no_descriptor_is_left_open(shared: Path) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = count()
    os.close(open_log(shared / "x/y/rank-0.log"))
    os.mkfifo(shared / "f")
    for trap in ("f", "f/x"):
        with pytest.raises(OSError, match=r"."):
            open_log(shared / trap)
    assert count() == before


def test_a_folder_that_may_only_be_passed_is_passed(shared: Path) -> None:
    passed = shared / "passed"
    (passed / "runs").mkdir(parents=True)
    passed.chmod(0o311)
    _write(passed / "runs/rank-0.log", b"x")
    assert stat.S_IMODE(passed.stat().st_mode) == 0o311
    passed.chmod(0o755)
