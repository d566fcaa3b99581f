"""The units, as systemd itself reads them."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        shutil.which("systemd-analyze") is None, reason="systemd is not installed (apt: systemd)"
    ),
]

FOLDER = Path(__file__).resolve().parents[2] / "systemd"
# systemd's scale: 0 is fully confined, 10 is unconfined root. The agent must see the machine.
EXPOSURE_MAX = {"everstep-agent.service": 4.0, "everstep-controller.service": 2.0}
UNITS = list(EXPOSURE_MAX)


def _installed(unit: str, folder: Path) -> Path:
    """Return the unit with a program that exists here, as an installation would have it."""
    copy = folder / unit
    text = (FOLDER / unit).read_text(encoding="utf-8")
    copy.write_text(text.replace("ExecStart=/opt/everstep/bin/", f"ExecStart={folder}/"))
    program = folder / unit.removesuffix(".service")
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return copy


def _run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_clean(unit: str, tmp_path: Path) -> None:
    verified = _run("systemd-analyze", "verify", "--man=no", _installed(unit, tmp_path))
    # The exit code is 0 even for unknown keys: only silence means clean.
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_confined(unit: str, tmp_path: Path) -> None:
    path = _installed(unit, tmp_path)
    judged = _run("systemd-analyze", "security", "--offline=true", "--no-pager", path)
    (line,) = [line for line in judged.stdout.splitlines() if "Overall exposure level" in line]
    print(line.strip())
    score = float(line.split(":")[1].split()[0])
    assert score <= EXPOSURE_MAX[unit]


def test_users_and_folders_are_made(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    for command in (
        ("systemd-sysusers", f"--root={tmp_path}", FOLDER / "sysusers.d" / "everstep.conf"),
        (
            "systemd-tmpfiles",
            "--create",
            f"--root={tmp_path}",
            FOLDER / "tmpfiles.d" / "everstep.conf",
        ),
    ):
        made = _run(*command)
        assert made.returncode == 0, made.stderr
    users = (tmp_path / "etc" / "passwd").read_text()
    assert "everstep-agent" in users
    assert "everstep-controller" in users
    assert (tmp_path / "etc" / "everstep" / "tls").stat().st_mode & 0o777 == 0o750
