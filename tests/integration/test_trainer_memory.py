"""A rank that the kernel kills because memory ran out says nothing; its launcher says it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_common.reports import RankExited
from fakes.waits import wait_until
from integration.trainer_job import joined_job

_MEMORY = Path("/sys/fs/cgroup/memory")
_LIMIT_BYTES = 256 << 20
# The first rank waits, the second takes four times what there is.
_HUNGRY = f"""
import os, time
parts = []
while os.environ["RANK"] == "1" and len(parts) < 16:
    parts.append(bytearray(os.urandom({_LIMIT_BYTES // 4})))
time.sleep(600)
"""


@pytest.fixture
def limited() -> Iterator[Path]:
    """A control group of the kernel's first version with little memory, and without swap."""
    folder = _MEMORY / f"everstep-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(_LIMIT_BYTES))
    except OSError:
        pytest.skip("the sandbox denies a control group of version 1 with a memory limit")
    yield folder
    wait_until(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()


def test_a_rank_that_is_killed_for_memory_is_told_as_that(tmp_path: Path, limited: Path) -> None:
    with joined_job(tmp_path, sys.executable, "-c", _HUNGRY) as job:
        (limited / "cgroup.procs").write_text(str(job.launcher.pid))
        job.start(1, ranks=2)
        exited = job.agent.expect(RankExited)
        assert isinstance(exited, RankExited)
        job.stop(1)
        _, _, errors = job.end()
    assert (exited.rank, exited.signal, exited.kind) == (1, 9, "host_memory")
    told = "the kernel killed it because memory ran out: its control group may have 0.25 GiB"
    assert exited.exception == told
    assert f"rank 1 of generation 1 was killed by SIGKILL ({told})" in errors


def test_a_rank_that_somebody_kills_is_only_killed(tmp_path: Path, limited: Path) -> None:
    wait = "import time; time.sleep(600)"
    with joined_job(tmp_path, sys.executable, "-c", wait) as job:
        (limited / "cgroup.procs").write_text(str(job.launcher.pid))
        os.kill(job.start(1, ranks=2)[1], 9)
        exited = job.agent.expect(RankExited)
        assert isinstance(exited, RankExited)
    assert (exited.rank, exited.kind, exited.exception) == (1, "killed", "")
