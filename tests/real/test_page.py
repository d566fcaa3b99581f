"""The page in a real browser, of a real fleet: what is clicked, what follows, and no complaint."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fakes.waits import wait_until
from integration.real_fleet import JOB, TRAINING, RealFleet, running_fleet
from real.browsers import CHROMIUM, SIZES, Visit, browser, visit

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("playwright.sync_api")
pytest.importorskip("axe_playwright_python")
pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not CHROMIUM.exists(), reason="the browser is not installed (apt: chromium)"
    ),
]


@dataclass(frozen=True, slots=True)
class _Stage:
    fleet: RealFleet
    address_file: Path
    shown: Visit

    def root(self) -> str:
        """Return the address of the fleet's page."""
        return self.address_file.read_text(encoding="ascii").partition("login")[0]

    def paths(self) -> list[str]:
        """Return a path of each kind of page."""
        incident = self.fleet.ledger(JOB).incidents[0].incident
        return ["", f"job/{JOB}", f"incident/{incident}", "node/node-1", "node/nobody"]


def _draws(page: "Page") -> bool:
    """Load a page again; return whether it has curves to draw."""
    page.reload()
    return page.locator("main").get_by_text("No samples of this node").count() == 0


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Stage]:
    """Yield a fleet whose job has failed once, the page of it, and a browser that was let in."""
    address_file = tmp_path_factory.mktemp("page") / "address"
    with running_fleet("node-1", "node-2", "node-3") as fleet:
        script = [str(TRAINING), "--steps", "100000", "--step-seconds-min", "0.05"]
        fleet.launch_script(script, nodes="2")
        fleet.until("training", 120, lambda: fleet.job().state == "running" and fleet.step() > 20)
        rank = next(filter(None, map(fleet.rank, fleet.nodes)))
        os.kill(rank.pid, signal.SIGKILL)
        fleet.until("a restart", 120, lambda: bool(fleet.ledger(JOB).incidents))
        fleet.until("its end", 120, lambda: fleet.ledger(JOB).incidents[0].over_ns > 0)
        line = [sys.executable, "-m", "everstep.entry", "page", "--listen", "127.0.0.1:0"]
        line += ["--address-file", str(address_file), "--controller", fleet.address]
        line += ["--secret-file", str(fleet.secret), "--grafana", "https://grafana.example"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        server = subprocess.Popen(line, env=environment)
        try:
            wait_until(address_file.exists)
            with browser() as running:
                shown = visit(running, address_file.read_text(encoding="ascii"))
                yield _Stage(fleet, address_file, shown)
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(30) == 128 + signal.SIGINT


def test_somebody_looks_at_the_fleet_a_job_its_incident_and_a_node(stage: _Stage) -> None:
    page, complaints = stage.shown.page, stage.shown.complaints
    page.get_by_role("heading", name="3 nodes").wait_for()
    assert page.locator("a.tile").count() == 3
    # It follows: a node that is claimed now is seen to be, without a reload.
    assert stage.fleet.everstep("isolate", "node-3", "--reason", "a test").returncode == 0
    claimed = page.locator('a.tile.claimed[href="/node/node-3"]')
    claimed.wait_for()
    assert claimed.inner_text() == "C"
    assert "a test" in page.locator("#named").inner_text()
    # By keyboard from one node to the next, and into it.
    page.locator("a.tile").first.focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="node-3", exact=True).wait_for()
    assert "a test" in page.locator("main").inner_text()
    # A node has no curves before its agent has told samples for some seconds.
    wait_until(lambda: _draws(page))
    page.locator("canvas").first.wait_for()
    grafana = page.get_by_role("link", name="Grafana").get_attribute("href")
    assert grafana == "https://grafana.example/d/everstep-node?var-node=node-3"
    page.get_by_role("link", name="Fleet").click()
    page.get_by_role("link", name=JOB, exact=True).click()
    page.get_by_role("heading", name=JOB, exact=True).wait_for()
    assert "training: steps that count" in page.locator("main").inner_text()
    assert page.locator("canvas").count() == 2
    # Its steps go on without a reload, and their curves with them.
    counted = page.locator("#curves-told").inner_text()
    page.wait_for_timeout(200)
    wait_until(lambda: _look(stage) and page.locator("#curves-told").inner_text() != counted)
    page.locator('a[href^="/incident/"]').last.click()
    page.get_by_role("heading", name="Its seconds").wait_for()
    told = page.locator("main").inner_text()
    assert "was killed by signal 9" in told
    assert "inc.init" in told
    assert "Not done, and why" in told
    page.get_by_label("Why").fill("node-3")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="node-3", exact=True).wait_for()
    assert complaints == []
    # The address of before is used, and there is another one.
    assert page.request.get(stage.address_file.read_text(encoding="ascii")).ok


def _look(stage: _Stage) -> bool:
    """Let the browser do what is due: it does nothing while nobody asks it."""
    stage.shown.page.wait_for_timeout(500)
    return True


def test_each_page_fits_each_screen_in_light_and_dark_and_everybody_can_use_it(
    stage: _Stage, tmp_path: Path
) -> None:
    page, found = stage.shown.page, []
    stage.shown.complaints.clear()
    for path in stage.paths():
        page.goto(stage.root() + path)
        page.locator("main h1").wait_for()
        for size, (width, height) in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            page.screenshot(path=tmp_path / f"{_name(path)}-{size}.png", full_page=True)
            found += [f"{path} {size}: too wide"] if stage.shown.overflow() > 0 else []
        found += [f"{path}: {one}" for one in stage.shown.violations()]
        page.emulate_media(color_scheme="dark")
        page.screenshot(path=tmp_path / f"{_name(path)}-dark.png", full_page=True)
        found += [f"{path} dark: {one}" for one in stage.shown.violations("color-contrast")]
        page.emulate_media(color_scheme="light")
    assert found == []
    # The last of them is of a node that there is not, and says so.
    assert "no node" in page.locator("main").inner_text()
    assert [one for one in stage.shown.complaints if "404 (Not Found)" not in one] == []


def _name(path: str) -> str:
    return path.replace("/", "-") or "fleet"


def test_what_is_folded_away_on_a_screen_is_on_paper(stage: _Stage, tmp_path: Path) -> None:
    page = stage.shown.page
    page.goto(f"{stage.root()}job/{JOB}")
    page.locator("canvas").first.wait_for()
    assert not page.locator("#curves").is_visible()
    printed = tmp_path / "job.pdf"
    page.pdf(path=printed, format="A4")
    text = subprocess.run(
        ["pdftotext", "-layout", printed, "-"], capture_output=True, text=True, check=True
    ).stdout
    assert "step time, mean, s" in text
    assert "Why" not in text


def test_without_a_script_it_tells_the_same(stage: _Stage) -> None:
    running = stage.shown.page.context.browser
    assert running is not None
    context = running.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(stage.address_file.read_text(encoding="ascii"))
    page.goto(f"{stage.root()}job/{JOB}")
    assert page.locator("canvas").count() == 0
    table = page.get_by_role("region", name="Steps and effective training time as a table")
    assert table.get_by_role("row").count() > 3
    context.close()
