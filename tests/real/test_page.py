"""The page in a real browser, of a real fleet: what is clicked, what follows, and no complaint."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakes.waits import wait_until
from integration.real_fleet import JOB, TRAINING, RealFleet, running_fleet

playwright = pytest.importorskip("playwright.sync_api")
_CHROMIUM = Path("/usr/bin/chromium")
pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not _CHROMIUM.exists(), reason="the browser is not installed (apt: chromium)"
    ),
]


@dataclass(frozen=True, slots=True)
class _Stage:
    fleet: RealFleet
    address_file: Path
    server: "subprocess.Popen[bytes]"

    def address(self) -> str:
        """Return the address that lets in once."""
        wait_until(self.address_file.exists)
        return self.address_file.read_text(encoding="ascii")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Stage]:
    """Yield a fleet whose job has failed once, and the page of it."""
    address_file = tmp_path_factory.mktemp("page") / "address"
    with running_fleet("node-1", "node-2", "node-3") as fleet:
        script = [str(TRAINING), "--steps", "100000", "--step-seconds-min", "0.05"]
        fleet.launch_script(script, nodes="2")
        fleet.until("training", 120, lambda: fleet.job().state == "running" and fleet.step() > 20)
        rank = next(filter(None, map(fleet.rank, fleet.nodes)))
        os.kill(rank.pid, signal.SIGKILL)
        fleet.until("a restart", 120, lambda: bool(fleet.ledger(JOB).incidents))
        line = [sys.executable, "-m", "everstep.entry", "page", "--listen", "127.0.0.1:0"]
        line += ["--address-file", str(address_file), "--controller", fleet.address]
        line += ["--secret-file", str(fleet.secret)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        server = subprocess.Popen(line, env=environment)
        try:
            yield _Stage(fleet, address_file, server)
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(30) == 128 + signal.SIGINT


def test_somebody_looks_at_the_fleet_a_job_its_incident_and_a_node(stage: _Stage) -> None:
    complaints: list[str] = []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=str(_CHROMIUM), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda said: complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(stage.address())
        page.get_by_role("heading", name="3 nodes").wait_for()
        assert page.locator("a.tile").count() == 3
        # It follows: a node that is claimed now is seen to be, without a reload.
        assert stage.fleet.everstep("isolate", "node-3", "--reason", "a test").returncode == 0
        page.locator('a.tile.claimed[data-node="node-3"]').wait_for()
        assert page.locator('a.tile[data-node="node-3"]').inner_text() == "C"
        page.get_by_role("link", name=JOB, exact=True).click()
        page.get_by_role("heading", name=JOB, exact=True).wait_for()
        assert "training: steps that count" in page.locator("main").inner_text()
        page.locator('a[href^="/incident/"]').last.click()
        page.get_by_role("heading", name="Its seconds").wait_for()
        assert "was killed by signal 9" in page.locator("main").inner_text()
        page.get_by_label("Why").fill("node-3")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="node-3", exact=True).wait_for()
        assert "a test" in page.locator("main").inner_text()
        assert complaints == []
        # The address of before is used, and there is another one.
        assert page.request.get(stage.address()).ok
        browser.close()
