"""The job's secret."""

import os
from pathlib import Path

import pytest

from everstep.launch.job_token import TokenError, job_token


def test_the_first_launcher_makes_it_and_the_others_read_it(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    first = job_token("j", None, environ)
    path = tmp_path / "everstep/jobs/j.token"
    assert job_token("j", None, environ) == first
    assert len(first) == 64
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == ["j.token"]
    assert job_token("k", None, environ) != first


def test_the_environment_comes_first(tmp_path: Path) -> None:
    assert job_token("j", tmp_path / "no", {"EVERSTEP_JOB_TOKEN": "t"}) == "t"
    assert not (tmp_path / "no").exists()


def test_a_token_that_others_can_read_is_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("t")
    path.chmod(0o644)
    with pytest.raises(TokenError, match="chmod 600"):
        job_token("j", path, {})


def test_a_token_is_not_made_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "no" / "token"
    with pytest.raises(TokenError, match=r"there is no folder .*no; correct --token-file"):
        job_token("j", path, {})
    assert not path.parent.exists()


def test_no_token_is_made_below_a_folder_called_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TokenError, match=r"no place for the job token, .* --token-file"):
        job_token("j", None, {"XDG_STATE_HOME": "~/state"})
    assert not list(tmp_path.iterdir())


def test_nobody_is_told_to_change_the_rights_of_a_device() -> None:
    with pytest.raises(TokenError, match="/dev/null is not a file; name one with --token-file"):
        job_token("j", Path("/dev/null"), {})


@pytest.mark.parametrize(("content", "words"), [("", "is empty"), (None, "is not a file")])
def test_a_token_that_cannot_be_read(tmp_path: Path, content: str | None, words: str) -> None:
    path = tmp_path / "token"
    if content is None:
        path.mkdir(mode=0o700)
    else:
        path.write_text(content)
        path.chmod(0o600)
    with pytest.raises(TokenError, match=words):
        job_token("j", path, {})


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make another user's file")
def test_a_token_that_another_user_has_written_is_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("t")
    path.chmod(0o600)
    os.chown(path, 54321, 54321)
    with pytest.raises(TokenError, match="belongs to another user"):
        job_token("j", path, {})
