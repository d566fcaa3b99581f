"""A node that is cut off from the network, in one direction or both, with every plan."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from everstep_cli.demo import reaper
from fakes.waits import wait_until
from real.sandbox import denied, denies_interfaces

_ROOT = Path(__file__).resolve().parents[2]
_SCRIPT = Path(__file__).with_name("cut_fault.py")
# All processes of a test inherit this variable.
_MARK = "CUT_FAULT_TEST"
_RULES = "ip link add br0 type bridge && ip rule add pref 1 iif br0 blackhole"
_DENIED = denies_interfaces() or denied(_RULES)

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="ip is not installed (apt: iproute2)"),
    pytest.mark.skipif(bool(_DENIED), reason=_DENIED),
]
_CELLS = [(way, plan) for way in ("deaf", "mute", "both") for plan in ("spare", "re-form", "wait")]
_ALWAYS = {("both", "spare")}


@pytest.mark.parametrize(
    ("way", "plan"),
    [cell if cell in _ALWAYS else pytest.param(*cell, marks=pytest.mark.long) for cell in _CELLS],
)
def test_a_job_ends_as_if_nothing_had_been_though_a_node_was_cut_off(
    way: str, plan: str, tmp_path: Path
) -> None:
    parts = ("agent", "common", "controller", "proto", "trainer", "tests")
    paths = os.pathsep.join(str(_ROOT / part) for part in parts)
    done = subprocess.run(
        ["unshare", "--net", sys.executable, str(_SCRIPT), way, plan],
        env={**os.environ, "PYTHONPATH": paths, _MARK: str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=380,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "recovered" in done.stdout
    # Namespaces end with the last process in them.
    wait_until(lambda: None if _left(str(tmp_path)) else True)


def _left(mark: str) -> list[int]:
    """Return the processes that still run of what was started with this mark."""
    return [pid for pid in reaper.parents() if reaper.environment(pid).get(_MARK) == mark]
