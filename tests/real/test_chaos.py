"""Half a minute of faults at three controllers, their database and agents: nothing is violated."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.__main__ import missing
from fakes.controllers import environment

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


def test_half_a_minute_of_faults_violates_nothing(tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(reason)
    report = tmp_path / "report.json"
    words = ["--minutes", "0.5", "--seed", "3", "--report", str(report)]
    words += ["--folder", str(tmp_path / "evidence")]
    done = subprocess.run(
        [sys.executable, "-m", "chaos", *words],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    told = json.loads(report.read_text())
    assert sum(told["injected"].values()) >= 3
    assert all(told["checked"].values())
