"""Folders of the agent are its own: nobody else can put a file in them, or one in their place."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from everstep_agent.detectors.agent import judge_runtime_folder
from everstep_agent.jobs.state.facts import JobFacts
from everstep_agent.jobs.state.store import JobStore, RuntimeFolder, open_database
from everstep_agent.persistence.data_folder import FolderInUseError, folder_problem, only_agent_of
from everstep_common.judging.judgement import Faulty, Healthy

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


def test_one_that_is_full_is_a_finding_until_a_change_is_written_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    database = open_database(":memory:")
    store = JobStore(database)
    store.save(JobFacts("a" * 1000))
    assert store.trouble == ""
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages}")
    store.save(JobFacts("b" * 100_000))
    assert "cannot be written: database or disk is full" in caplog.text
    (judged,) = judge_runtime_folder("/run/jobs", store.trouble, ())
    assert isinstance(judged, Faulty)
    assert judged.finding.component == "disk//run/jobs"
    assert judged.finding.condition == "JobsNotDurable"
    assert judged.finding.evidence == "database or disk is full"
    database.execute("PRAGMA max_page_count = 1000000")
    store.save(JobFacts("b" * 100_000))
    assert judge_runtime_folder("/run/jobs", store.trouble, ()) == []
    (judged,) = judge_runtime_folder("/run/jobs", store.trouble, (judged.key,))
    assert isinstance(judged, Healthy)
