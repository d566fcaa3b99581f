"""The options on what is kept: checked at once, each mistake with what to do about it."""

import os
from pathlib import Path

import pytest

from everstep.launch.command_line.option_parser import UsageError
from everstep.launch.command_line.options import parse_options
from everstep.launch.command_line.snapshot_options import KeepOptions
from everstep_common.reports import Storage


def _keep(*options: str, **environ: str) -> KeepOptions:
    return parse_options(["--job", "demo", *options, "--", "true"], environ).keep


def test_without_the_options_nothing_is_stored_and_the_controller_decides() -> None:
    assert _keep() == KeepOptions(None, 0, 0, 0)


def test_a_folder_is_made_and_its_path_is_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # all nodes of a job say it
        storage = _keep("--persist", "one").storage
        assert storage == Storage(path=str(tmp_path / "one"), every_ns=600_000_000_000, keep=2)
        assert (tmp_path / "one").is_dir()


def test_a_folder_whose_parent_is_missing_is_not_made_where_a_mount_should_be(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError) as raised:
        _keep("--persist", str(tmp_path / "typo/one"))
    assert f"there is no {tmp_path}/typo on this node; mount it" in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_parent_that_takes_no_folder_is_not_told_as_missing() -> None:
    with pytest.raises(UsageError) as raised:
        _keep("--persist", "/proc/x")
    assert str(raised.value).startswith("--persist /proc/x: /proc takes no folder; name a folder")


def test_how_often_and_how_many(tmp_path: Path) -> None:
    options = ("--persist-every", "50", "--persist-seconds", "1.5", "--persist-keep", "3")
    storage = _keep("--persist", str(tmp_path), *options).storage
    assert storage == Storage(path=str(tmp_path), every_steps=50, every_ns=1_500_000_000, keep=3)


def test_steps_alone_are_not_joined_by_the_default_seconds(tmp_path: Path) -> None:
    storage = _keep("--persist", str(tmp_path), "--persist-every", "50").storage
    assert storage is not None
    assert (storage.every_steps, storage.every_ns) == (50, 0)


def test_a_bucket_takes_its_credentials_along() -> None:
    kept = _keep("--persist", "s3://models/runs/", AWS_PROFILE="me", SECRET="no")
    assert kept.storage is not None
    assert kept.storage.path == "s3://models/runs"
    assert kept.environment == {"AWS_PROFILE": "me"}


def test_a_folder_takes_no_credentials_along(tmp_path: Path) -> None:
    kept = _keep("--persist", str(tmp_path), AWS_PROFILE="me")
    assert kept.storage is not None
    assert kept.environment == {}


@pytest.mark.parametrize(
    ("text", "steps"), [("auto", (0, 0)), ("1", (1, 1)), ("20", (20, 20)), ("2:20", (2, 20))]
)
def test_steps_from_one_snapshot_to_the_next(text: str, steps: tuple[int, int]) -> None:
    keep = _keep("--snapshot-every", text)
    assert (keep.every_min, keep.every_max) == steps


@pytest.mark.parametrize(
    ("text", "size"),
    [("12GiB", 12 << 30), ("1.5 GB", 1_500_000_000), ("512mib", 512 << 20), ("4096", 4096)],
)
def test_sizes(text: str, size: int) -> None:
    assert _keep("--snapshot-memory", text).memory_bytes == size


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--persist-every", "5"), "--persist-every needs --persist PATH"),
        (("--persist", "gs://bucket"), "name a folder, or s3://BUCKET/PREFIX"),
        (("--persist", "s3:/runs"), "name a folder, or s3://BUCKET/PREFIX"),
        (("--persist", " "), "name a folder, or s3://BUCKET/PREFIX"),
        (("--persist", "s3://B"), "expected s3://BUCKET/PREFIX"),
        (("--persist", os.fsdecode(b"/tmp/\xff")), "name a folder whose path is Unicode text"),
        (("--persist", "/dev/null"), "Not a directory; name a folder that you may write"),
        (("--persist", "/dev/null/x"), "Not a directory; name a folder that you may write"),
        (("--persist", "s3://bucket/x", "--persist-keep", "1"), "must be at least 2"),
        (("--persist", "s3://bucket/x", "--persist-every", "0"), "must be above 0"),
        (("--persist", "s3://bucket/x", "--persist-every", "9" * 20), "at most 1000000000"),
        (("--persist", "s3://bucket/x", "--persist-seconds", "nan"), "--persist-seconds nan: it"),
        (("--snapshot-every", "0"), "expected a number, MIN:MAX from 1 up, or auto"),
        (("--snapshot-every", "9:3"), "expected a number, MIN:MAX from 1 up, or auto"),
        (("--snapshot-memory", "much"), "expected a size, for example 12GiB"),
        (("--snapshot-memory", "0"), "expected a size, for example 12GiB"),
        (("--snapshot-memory", "12"), "that is 12 bytes; name the unit, for example 12GiB"),
    ],
)
def test_a_mistake_is_told_with_what_to_do(options: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        _keep(*options)
    assert sentence in str(raised.value)


def test_where_to_begin_is_said_once(tmp_path: Path) -> None:
    place = ("--persist", str(tmp_path))
    assert not _keep(*place).continues
    assert _keep(*place, "--continue").continues
    with pytest.raises(UsageError, match="--fresh and --continue each say where to begin"):
        _keep(*place, "--continue", "--fresh")


def test_what_has_begun_in_the_jobs_folder_is_seen(tmp_path: Path) -> None:
    place = ("--persist", str(tmp_path))
    (tmp_path / "other/gen-1").mkdir(parents=True)
    (tmp_path / "demo").mkdir()
    assert not _keep(*place).begun
    (tmp_path / "demo/gen-3").mkdir()
    assert _keep(*place).begun
    assert not _keep("--persist", "s3://models/runs").begun
