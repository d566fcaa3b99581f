"""Cuts around the controller, in network namespaces: a job of two nodes steps on behind them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from real.sandbox import denied, denies_interfaces

_ROOT = Path(__file__).resolve().parents[2]
_SCRIPT = Path(__file__).with_name("cut_controller.py")
_RULES = "ip link add br0 type bridge && ip rule add pref 1 iif br0 blackhole"
_DENIED = denies_interfaces() or denied(_RULES)

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="ip is not installed (apt: iproute2)"),
    pytest.mark.skipif(bool(_DENIED), reason=_DENIED),
]


def _cut(heard: int, count: int, *more: str) -> str:
    parts = ("agent", "common", "controller", "proto", "trainer", "tests")
    paths = os.pathsep.join(str(_ROOT / part) for part in parts)
    done = subprocess.run(
        ["unshare", "--net", sys.executable, str(_SCRIPT), str(heard), str(count), *more],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=880,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("heard", "count"),
    [(2, 1), *(pytest.param(heard, 5, marks=pytest.mark.long) for heard in (2, 3))],
)
def test_a_controller_that_hears_at_most_half_loses_nobody_and_a_job_steps_on(
    heard: int, count: int
) -> None:
    assert f"heard {heard} of 6: 0 lost, 0 stopped, 0 steps thrown away" in _cut(heard, count)


@pytest.mark.parametrize("count", [1, pytest.param(4, marks=pytest.mark.long)])
def test_a_job_whose_members_were_all_lost_behind_a_cut_goes_on_when_all_are_heard(
    count: int,
) -> None:
    told = _cut(4, count, "lost")
    assert f"heard 4 of 6: {2 * count} lost, 0 stopped, 0 steps thrown away" in told
    assert f"stops withdrawn: {count}" in told


@pytest.mark.long
def test_a_controller_that_hears_more_than_half_takes_the_others_for_lost() -> None:
    assert "heard 4 of 6: 6 lost, 0 stopped" in _cut(4, 3)
