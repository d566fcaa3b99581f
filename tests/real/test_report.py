"""A report of a real job in a real browser: it draws, complains of nothing, and prints."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.real_fleet import JOB, TRAINING, running_fleet

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not shutil.which("chromium") or not shutil.which("pdftotext"),
        reason="the browser is not installed (apt: chromium poppler-utils)",
    ),
]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a folder with the reports of a job that has failed once, and of the fleet."""
    folder = tmp_path_factory.mktemp("reports")
    with running_fleet("node-1", "node-2") as fleet:
        fleet.launch_script([str(TRAINING), "--steps", "100000", "--step-seconds-min", "0.05"])
        fleet.until("training", 120, lambda: fleet.job().state == "running" and fleet.step() > 20)
        rank = fleet.rank("node-1")
        assert rank is not None
        os.kill(rank.pid, signal.SIGKILL)
        fleet.until("a restart", 120, lambda: bool(fleet.ledger(JOB).incidents))
        fleet.until("its end", 120, lambda: fleet.ledger(JOB).incidents[0].over_ns > 0)
        for name, line in {"job": [JOB], "fleet": ["--fleet"]}.items():
            made = fleet.everstep("report", *line, "-o", str(folder / f"{name}.html"))
            assert made.returncode == 0, made.stderr
        yield folder


def _browse(folder: Path, *options: str) -> str:
    """Run the browser without a screen; return what pages write to its console."""
    line = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    line += [f"--user-data-dir={folder / 'profile'}", "--no-first-run"]
    done = subprocess.run(
        [*line, *options], capture_output=True, text=True, timeout=120, check=True
    )
    return "\n".join(re.findall(r"CONSOLE.*", done.stderr))


@pytest.mark.parametrize(
    ("name", "head"),
    [("job", f"Job {JOB}"), ("fleet", "All jobs")],
)
def test_it_is_drawn_without_a_complaint_and_prints(reports: Path, name: str, head: str) -> None:
    page, printed = reports / f"{name}.html", reports / f"{name}.pdf"
    said = _browse(reports, f"--print-to-pdf={printed}", "--no-pdf-header-footer", page.as_uri())
    assert said == ""
    text = subprocess.run(
        ["pdftotext", "-layout", printed, "-"], capture_output=True, text=True, check=True
    ).stdout
    first, *others = text.split("\f")
    assert head in first
    assert "training: steps that count" in first
    assert "One failure cost" in first
    assert "was killed by signal 9" in "".join(others)


def test_a_picture_of_it_has_the_colours_of_its_bars(reports: Path) -> None:
    shot = reports / "job.png"
    page = (reports / "job.html").as_uri()
    _browse(reports, f"--screenshot={shot}", "--window-size=900,1600", page)
    assert shot.stat().st_size > 20_000
