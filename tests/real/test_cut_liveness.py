"""Cuts that are no loss, in network namespaces: a job of two nodes steps on, and nobody is lost."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from real.cut_liveness import CASES
from real.sandbox import denied, denies_interfaces

_ROOT = Path(__file__).resolve().parents[2]
_SCRIPT = Path(__file__).with_name("cut_liveness.py")
_RULES = "ip link add br0 type bridge && ip rule add pref 1 iif br0 ipproto udp blackhole"
_DENIED = denies_interfaces() or denied(_RULES)

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="ip is not installed (apt: iproute2)"),
    pytest.mark.skipif(bool(_DENIED), reason=_DENIED),
]
_ALWAYS = ("no UDP between any nodes", "the controller hears nobody")


@pytest.mark.parametrize(
    ("cut", "count"),
    [
        *((cut, 1) for cut in _ALWAYS),
        *(pytest.param(cut, 2, marks=pytest.mark.long) for cut in CASES),
    ],
)
def test_a_job_of_two_nodes_steps_on_behind_a_cut_that_is_no_loss(cut: str, count: int) -> None:
    parts = ("agent", "common", "controller", "proto", "trainer", "tests")
    paths = os.pathsep.join(str(_ROOT / part) for part in parts)
    done = subprocess.run(
        ["unshare", "--net", sys.executable, str(_SCRIPT), cut, str(count)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=380,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nobody was lost" in done.stdout
