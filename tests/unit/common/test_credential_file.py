"""A secret in a file: read when it is needed, shown nowhere, refused where others may read it."""

import os
import traceback
from dataclasses import dataclass
from pathlib import Path

import pytest

from everstep_common.config import ConfigError, describe_type, document, load, setting
from everstep_common.credential_file import CredentialError, CredentialFile

SECRET = "hunter2-hunter2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    url: str = setting("https://127.0.0.1", help="Where it answers.")
    token: CredentialFile | None = setting(None, help="Token of its users.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    retries: int = setting(3, help="How often.")
    scheduler: Scheduler = setting(factory=Scheduler, help="The scheduler.")


def written(folder: Path, content: bytes = SECRET.encode() + b"\n", mode: int = 0o600) -> Path:
    path = folder / "token"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def loaded(folder: Path, value: str) -> Config:
    path = folder / "controller.toml"
    path.write_text(f"[scheduler]\ntoken = {value}\n")
    return load(Config, path)


def told(error: BaseException) -> str:
    """Return all that a log could show of an error: itself, its causes, and their values."""
    return "".join(traceback.format_exception(error)) + repr(error)


def test_a_configuration_names_a_file_and_has_nothing_of_what_is_in_it(tmp_path: Path) -> None:
    path = written(tmp_path)
    config = loaded(tmp_path, f'"{path}"')
    assert config.scheduler.token == CredentialFile(path)
    assert config.scheduler.token is not None
    assert config.scheduler.token.read() == SECRET
    assert SECRET not in f"{config!r}{config}"
    assert str(path) in repr(config)


def test_a_file_that_is_replaced_counts_from_then_on(tmp_path: Path) -> None:
    token = CredentialFile(written(tmp_path))
    written(tmp_path, b"another")
    assert token.read() == "another"


def test_the_reference_shows_a_file_and_no_table() -> None:
    (doc,) = [one for one in document(Config) if one.key == "scheduler.token"]
    assert (doc.type, doc.default) == ("the path of a file with a secret", "not set")
    assert describe_type(CredentialFile | None) == doc.type


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o644, 0o666, 0o601])
def test_a_file_that_others_may_read_or_change_is_refused_with_what_to_type(
    tmp_path: Path, mode: int
) -> None:
    path = written(tmp_path, mode=mode)
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, f'"{path}"')
    (problem,) = caught.value.problems
    assert f"scheduler.token: {path} has the mode {mode:04o}, by which others may read" in problem
    assert f"'chmod g-wx,o= {path}'" in problem
    with pytest.raises(CredentialError, match="by which others may read"):
        CredentialFile(path).read()


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o440, 0o640])
def test_the_owner_may_change_it_and_the_group_may_read_it(tmp_path: Path, mode: int) -> None:
    assert CredentialFile(written(tmp_path, mode=mode)).read() == SECRET


def test_a_link_is_followed_as_kubernetes_and_systemd_make_them(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(written(tmp_path))
    assert CredentialFile(link).read() == SECRET


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "one line of text"),
        (b"\n", "one line of text"),
        (SECRET.encode() + b"\n\n", "one line of text"),
        (SECRET.encode() + b"\x1b[2J", "one line of text"),
        (SECRET.encode() + b"\xff", "not UTF-8"),
        (SECRET.encode() * 10_000, "more than 65536 bytes"),
    ],
)
def test_no_error_shows_what_is_in_a_file(tmp_path: Path, content: bytes, said: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(CredentialError, match=said) as caught:
        CredentialFile(path).read()
    assert SECRET not in told(caught.value)
    with pytest.raises(ConfigError, match=said) as refused:
        loaded(tmp_path, f'"{path}"')
    assert SECRET not in told(refused.value)


@pytest.mark.parametrize("value", [f'"{SECRET}"', f'["{SECRET}"]', f'{{ {SECRET} = "{SECRET}" }}'])
def test_a_secret_that_stands_in_the_configuration_itself_is_not_repeated(
    tmp_path: Path, value: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, value)
    assert SECRET not in told(caught.value)
    assert caught.value.problems[0].partition("scheduler.token: expected the ")[2]


def test_what_is_missing_or_no_file_is_told_with_the_other_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "controller.toml"
    path.write_text(f'retries = "x"\n[scheduler]\ntoken = "{tmp_path}/none"\n')
    with pytest.raises(ConfigError) as caught:
        load(Config, path)
    assert [problem.removeprefix(f"{path}: ") for problem in caught.value.problems] == [
        "retries: expected a whole number, got 'x'",
        f"scheduler.token: {tmp_path}/none cannot be read: No such file or directory; "
        f"'install -m 600 -o {os.geteuid()} /dev/stdin {tmp_path}/none' makes it of one line that "
        "is typed, and Ctrl-D",
    ]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    assert CredentialFile(pipe).problem() == f"{pipe} is not a file"
    assert CredentialFile(tmp_path).problem() == f"{tmp_path} cannot be read: Is a directory"


def test_a_path_that_no_system_has_is_told() -> None:
    with pytest.raises(CredentialError, match="expected the path of a file: embedded null byte"):
        CredentialFile(Path("/run/a\0b")).read()
