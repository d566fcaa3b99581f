"""Many interfaces on one node, as where each pod has one: users are told apart all the same."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from real.sandbox import denies_interfaces

_ROOT = Path(__file__).resolve().parents[2]
_SCRIPT = Path(__file__).with_name("owner_namespace.py")

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="ip is not installed (apt: iproute2)"),
    pytest.mark.skipif(bool(denies_interfaces()), reason=denies_interfaces()),
]


def test_a_socket_that_is_bound_to_the_last_of_many_interfaces_has_its_owner() -> None:
    paths = os.pathsep.join(str(_ROOT / part) for part in ("agent", "common"))
    done = subprocess.run(
        ["unshare", "--net", sys.executable, str(_SCRIPT)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "SocketOwner(uid=0, is_open=True)"
