"""What agents say of a peer behind cuts of every kind, in network namespaces."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from real.sandbox import denied, denies_interfaces

_ROOT = Path(__file__).resolve().parents[2]
_SCRIPT = Path(__file__).with_name("cut_evidence.py")
_RULES = "ip link add br0 type bridge && ip rule add pref 1 iif br0 ipproto udp blackhole"
_DENIED = denies_interfaces() or denied(_RULES)

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="ip is not installed (apt: iproute2)"),
    pytest.mark.skipif(bool(_DENIED), reason=_DENIED),
]


def test_a_node_tells_silence_from_refusal_and_from_the_networks_word() -> None:
    parts = ("agent", "common", "controller", "proto", "trainer", "tests")
    paths = os.pathsep.join(str(_ROOT / part) for part in parts)
    done = subprocess.run(
        ["unshare", "--net", sys.executable, str(_SCRIPT)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "told" in done.stdout
