"""A held GIL on a node without a free processor is told as one; ranks that train are not."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hangs.cases import Case
from hangs.live_job import Forge, LiveJob

pytestmark = pytest.mark.timeout(240)
# One more than there are processors: each process of the job waits for one then.
_BUSY = (os.cpu_count() or 1) + 1
_VICTIM = 2
_LOOKS = 4


@pytest.fixture
def load() -> Iterator[None]:
    """Keep more processors busy than there are."""
    line = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(line, start_new_session=True) for _ in range(_BUSY)]
    yield
    for one in busy:
        one.kill()
        one.wait()


def gil_held(job: LiveJob) -> dict[int, bool | None]:
    """Return what one look tells of each rank."""
    return {one.rank: one.process.gil_held for one in job.look()}


@pytest.mark.usefixtures("load")
@pytest.mark.parametrize("kind", ["gil", pytest.param("gil_computing", marks=pytest.mark.long)])
def test_only_the_rank_that_holds_it_is_told_to(kind: str) -> None:
    case = Case(kind, 1, "gradient_buckets", 4, _VICTIM, 0.5, 0.0, exits=False)
    with Forge() as forge:
        job = LiveJob(forge, case, exits=False)
        try:
            assert job.train_to(6, 90.0)
            assert job.learns()
            for _ in range(_LOOKS):
                assert True not in gil_held(job).values()
            assert (began_ns := job.inject(case))
            assert job.detected(began_ns)
            looks = [gil_held(job) for _ in range(_LOOKS)]
        finally:
            job.end()
    assert [look for look in looks if any(look[rank] for rank in look if rank != _VICTIM)] == []
    # Also of a look that the node is too busy for.
    assert [look[_VICTIM] for look in looks] == [True] * _LOOKS
