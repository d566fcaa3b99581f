"""Who else stores a job's steps to the same place: told by names that end with their processes."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.launch.standalone.storing_starts import storing_start, taken_over

_HOLDS = """
import sys
from everstep.launch.standalone.storing_starts import storing_start
with storing_start(sys.argv[1], sys.argv[2]) as others:
    print(*others, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def job() -> str:
    return f"job-{uuid.uuid4()}"


@pytest.fixture
def other(job: str) -> Iterator["subprocess.Popen[str]"]:
    """Return another process that stores the job's steps to /shared/ckpt."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDS, "/shared/ckpt", job],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        yield process
        process.kill()


def test_a_second_start_knows_the_first_until_that_is_killed(
    job: str, other: "subprocess.Popen[str]"
) -> None:
    with storing_start("/shared/ckpt", job) as others:
        assert others == (other.pid,)
    other.kill()
    other.wait(20)
    with storing_start("/shared/ckpt", job) as others:
        assert others == ()


def test_a_third_knows_the_second_also_when_the_first_has_ended(
    job: str, other: "subprocess.Popen[str]"
) -> None:
    with storing_start("/shared/ckpt", job):
        other.kill()
        other.wait(20)
        with storing_start("/shared/ckpt", job) as others:
            assert others == (os.getpid(),)


def test_another_place_and_another_job_are_none_of_its(
    tmp_path: Path, job: str, other: "subprocess.Popen[str]"
) -> None:
    (tmp_path / "link").symlink_to("/shared/ckpt")
    for place, name, seen in (
        ("/shared/other", job, ()),
        ("/shared/ckpt", f"{job}-2", ()),
        (str(tmp_path / "link"), job, (other.pid,)),
    ):
        with storing_start(place, name) as others:
            assert others == seen


def test_what_is_told_names_the_processes_that_are_seen() -> None:
    assert "which still runs (process 7): this one takes over" in taken_over("j", "/ckpt", (7,))
    assert "still runs (processes 7, 9):" in taken_over("j", "/ckpt", (7, 9))
    assert "still runs: this one" in taken_over("j", "/ckpt", (0,))
