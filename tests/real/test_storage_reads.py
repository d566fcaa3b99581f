"""All ranks of a job hang in reads of one mount: storage is told, no node is, and nothing restarts.

A real mount of FUSE, a real job of two nodes with torch, and agents and a controller.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from real.sandbox import denies_fuse

_ROOT = Path(__file__).resolve().parents[2]
_SCRIPT = Path(__file__).with_name("storage_reads.py")
pytest.importorskip("torch")
pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(500),
    pytest.mark.skipif(
        os.geteuid() != 0 or not Path("/dev/fuse").exists(),
        reason="needs root and the kernel's FUSE",
    ),
    pytest.mark.skipif(bool(denies_fuse()), reason=denies_fuse()),
]


@pytest.mark.parametrize("reads", ["direct", pytest.param("cached", marks=pytest.mark.long)])
def test_a_read_that_hangs_in_all_ranks_is_told_as_storage_and_the_job_goes_on_when_it_answers(
    reads: str,
) -> None:
    parts = ("agent", "common", "controller", "proto", "trainer", "tests")
    paths = os.pathsep.join(str(_ROOT / part) for part in parts)
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, str(_SCRIPT), reads],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=480,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Ranks 0-3 hold the job back: storage." in done.stdout, done.stdout
