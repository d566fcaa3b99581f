"""CI fails on a test that was skipped although CI should have had what it needs."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / ".ci" / "no_skips.py"


def _judge(folder: Path, *cases: str) -> subprocess.CompletedProcess[str]:
    report = folder / "report.xml"
    suite = f'<testsuite tests="{len(cases)}" failures="0" errors="0" skipped="1" time="2.5">'
    report.write_text(f"<testsuites>{suite}{''.join(cases)}</testsuite></testsuites>")
    return subprocess.run(
        [sys.executable, SCRIPT, report], capture_output=True, text=True, timeout=60, check=False
    )


_PASSED = '<testcase classname="a.b" name="t"/>'


def _skipped(reason: str) -> str:
    return f'<testcase classname="a.b" name="s"><skipped message="{reason}"/></testcase>'


def test_a_run_without_skips_passes_and_says_what_ran(tmp_path: Path) -> None:
    judged = _judge(tmp_path, _PASSED)
    assert judged.returncode == 0
    assert judged.stdout.startswith("report.xml: 1 tests, 0 failures")


def test_a_skip_fails_and_is_named_with_its_reason(tmp_path: Path) -> None:
    judged = _judge(tmp_path, _PASSED, _skipped("torch is not installed"))
    assert judged.returncode == 1
    assert "a.b.s: torch is not installed" in judged.stderr


def test_hardware_that_ci_lacks_may_be_skipped(tmp_path: Path) -> None:
    assert _judge(tmp_path, _skipped("needs a GPU")).returncode == 0
