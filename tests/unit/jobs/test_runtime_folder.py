"""Folders of the agent are its own: nobody else can put a file in them, or one in their place."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from everstep_agent.jobs.state.store import RuntimeFolder
from everstep_agent.persistence.data_folder import FolderInUseError, folder_problem, only_agent_of

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root to make another user's folder"
)


def _open_to_all(folder: Path) -> Path:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    return folder


def _of_another_user(folder: Path) -> Path:
    folder.mkdir(parents=True)
    os.chown(folder, 54321, 54321)
    return folder


@pytest.mark.parametrize("make", [_open_to_all, pytest.param(_of_another_user, marks=needs_root)])
@pytest.mark.parametrize("below", [".", "run"])
def test_one_that_another_user_could_be_in_is_refused(
    tmp_path: Path, make: Callable[[Path], Path], below: str
) -> None:
    folder = make(tmp_path / "state") / below
    folder.mkdir(exist_ok=True)
    assert "another user" in folder_problem(folder)
    with pytest.raises(OSError, match="another user"):
        RuntimeFolder.open(folder)
    with pytest.raises(FolderInUseError, match="another user"), only_agent_of(folder):
        pass


def test_one_of_its_own_below_a_sticky_folder_is_taken(tmp_path: Path) -> None:
    sticky = tmp_path / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    RuntimeFolder.open(sticky / "own").close()
    with only_agent_of(sticky / "data"):
        assert (sticky / "data").stat().st_mode & 0o777 == 0o700
    assert "another user" in folder_problem(sticky)
