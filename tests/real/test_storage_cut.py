"""A network that is cut in one direction only, while both sides store to one shared folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from real.sandbox import denied, denies_interfaces

_ROOT = Path(__file__).resolve().parents[2]
_SCRIPT = Path(__file__).with_name("cut_storage.py")
_RULES = "ip link add br0 type bridge && ip rule add pref 1 iif br0 blackhole"
_DENIED = denies_interfaces() or denied(_RULES)

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="ip is not installed (apt: iproute2)"),
    pytest.mark.skipif(bool(_DENIED), reason=_DENIED),
]


@pytest.mark.parametrize(
    ("way", "children"),
    [
        ("deaf", "running"),
        ("mute", "stopped"),
        pytest.param("deaf", "stopped", marks=pytest.mark.long),
        pytest.param("mute", "running", marks=pytest.mark.long),
    ],
)
def test_latest_never_points_to_the_branch_of_a_node_that_was_cut(way: str, children: str) -> None:
    parts = ("agent", "common", "controller", "proto", "trainer", "tests")
    paths = os.pathsep.join(str(_ROOT / part) for part in parts)
    done = subprocess.run(
        ["unshare", "--net", sys.executable, str(_SCRIPT), way, children],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=380,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "latest pointed to" in done.stdout
