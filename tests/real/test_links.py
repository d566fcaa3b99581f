"""Real interfaces in a network namespace: the kernel tells of a lost link, and a look follows."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from real.sandbox import denies_interfaces

_ROOT = Path(__file__).resolve().parents[2]
_SCRIPT = Path(__file__).with_name("link_namespace.py")

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="ip is not installed (apt: iproute2)"),
    pytest.mark.skipif(bool(denies_interfaces()), reason=denies_interfaces()),
]


def test_a_lost_carrier_is_found_because_the_kernel_tells_and_flaps_are_counted(
    tmp_path: Path,
) -> None:
    sysfs = tmp_path / "sys"
    sysfs.mkdir()
    paths = os.pathsep.join(str(_ROOT / part) for part in ("agent", "common", "proto", "tests"))
    done = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, str(_SCRIPT), str(sysfs)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    conditions = [condition for condition, _ in told["said"]]
    # Raised by the first loss, held while the link bounces, cleared by ten looks at a good link.
    assert conditions == ["+LinkDown", "+LinkFlapping", "-LinkDown"]
    # Interfaces that nobody watches come and go without a look.
    assert told["looks_for_strangers"] == 0
