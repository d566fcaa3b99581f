"""Browsing for the page's benchmark: the page's process, a browser, and what it measures itself."""

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.processes import module_command, process_cpu_s, running
from harness.talk import Talk
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
_START_S = 120.0
# An answer is kept for a second: after this each opening asks the controller anew.
_STALE_S = 1.3
# Of each message: what the script and the layout take, and what the frame takes that shows it.
_CLOCK = """
window.updates = [];
const on = Object.getOwnPropertyDescriptor(EventSource.prototype, "onmessage");
Object.defineProperty(EventSource.prototype, "onmessage", { set(show) {
  on.set.call(this, (event) => {
    const began = performance.now();
    show(event);
    document.body.offsetHeight;
    const spent = performance.now() - began;
    requestAnimationFrame(() => {
      const frame = performance.now();
      const channel = new MessageChannel();
      channel.port1.onmessage = () => window.updates.push(spent + performance.now() - frame);
      channel.port2.postMessage(0);
    });
  });
} });
"""
_PAINTED = """
() => new Promise((found) => new PerformanceObserver((list) => {
  for (const one of list.getEntries()) if (one.name === "first-contentful-paint") found(one.startTime);
}).observe({ type: "paint", buffered: true }))
"""  # noqa: E501


@dataclass(slots=True)
class Stage:
    """A synthetic fleet, the page of it, and a browser."""

    fleet: Talk
    page_pid: int
    browser: Browser
    _address_file: Path

    def visitor(self) -> BrowserContext:
        """Return a browser's context that was let in."""
        context = self.browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        # Used addresses are replaced by the next one at once.
        page.goto(self._address_file.read_text(encoding="ascii").strip(), wait_until="commit")
        page.close()
        return context

    def root(self) -> str:
        """Return the address of the fleet."""
        return self._address_file.read_text(encoding="ascii").partition("login")[0]


@contextlib.contextmanager
def stage(nodes: int) -> Iterator[Stage]:
    """Yield a fleet of a size with its page, and a browser."""
    if not CHROMIUM.exists():
        raise SystemExit("the browser is not installed: apt-get install chromium")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="everstep-bench-")))
        fleet = Talk(stack.enter_context(running(module_command("page.fleet", nodes))))
        reach, address_file = fleet.ask("connect"), folder / "address"
        assert isinstance(reach, list)
        command = [sys.executable, "-m", "everstep.entry", "page", "--listen", "127.0.0.1:0"]
        command += ["--address-file", str(address_file)]
        command += ["--controller", reach[0], "--secret-file", reach[1]]
        page = stack.enter_context(running(command))
        _wait_for(address_file)
        started = stack.enter_context(sync_playwright())
        options = ["--no-sandbox", "--disable-gpu"]
        browser = started.chromium.launch(executable_path=str(CHROMIUM), args=options)
        stack.callback(browser.close)
        yield Stage(fleet, page.pid, browser, address_file)


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + _START_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise SystemExit(f"the page has not started within {_START_S:g} s")
        time.sleep(0.05)


@dataclass(frozen=True, slots=True)
class Paint:
    """One opening of the fleet: seconds until nodes are painted, and the processor time of all."""

    wall_s: float
    # Of the controller, the page's process and the thread of the browser that draws.
    cpu_s: float


def first_paints(shown: Stage, repeats: int) -> list[Paint]:
    """Return what openings of the fleet take; one before them is not counted."""
    context = shown.visitor()
    found = []
    for _ in range(repeats + 1):
        time.sleep(_STALE_S)
        page = context.new_page()
        session = context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        before_s = _servers_cpu_s(shown)
        page.goto(shown.root(), wait_until="load")
        wall_s = float(page.evaluate(_PAINTED)) / 1e3
        metrics = session.send("Performance.getMetrics")["metrics"]
        drawn_s = next(one["value"] for one in metrics if one["name"] == "TaskDuration")
        found.append(Paint(wall_s, _servers_cpu_s(shown) - before_s + drawn_s))
        page.close()
    context.close()
    return found[1:]


def _servers_cpu_s(shown: Stage) -> float:
    told = shown.fleet.ask("look")
    assert isinstance(told, dict)
    return float(told["cpu_s"]) + process_cpu_s(shown.page_pid)


def transferred_bytes(shown: Stage) -> int:
    """Return how much comes over the network for the page of the fleet."""
    context = shown.visitor()
    page = context.new_page()
    session, sizes = context.new_cdp_session(page), []
    session.on("Network.loadingFinished", lambda told: sizes.append(told["encodedDataLength"]))
    session.send("Network.enable")
    page.goto(shown.root(), wait_until="load")
    page.wait_for_timeout(500)
    context.close()
    return int(sum(sizes))


def updates_s(shown: Stage, changes: int, nodes: int) -> list[float]:
    """Return the seconds that a browser computes for each update, of so many nodes."""
    context = shown.visitor()
    page = context.new_page()
    page.add_init_script(_CLOCK)
    page.goto(shown.root(), wait_until="load")
    for done in range(1, changes + 1):
        shown.fleet.ask("change", nodes)
        _until_updated(page, done + 1)
    found: list[float] = page.evaluate("() => window.updates")
    context.close()
    # The first one is of what the page has shown already.
    return [one / 1e3 for one in found[1:]]


def _until_updated(page: Page, count: int) -> None:
    """Return when a page has shown so many messages."""
    deadline = time.monotonic() + _START_S
    while int(page.evaluate("() => window.updates.length")) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"the page has not shown {count} changes within {_START_S:g} s")
        page.wait_for_timeout(200)


def look_for(pages: list[Page], seconds: float, shown: Stage, nodes: int) -> None:
    """Have nodes change every two seconds for so long, while pages are looked at."""
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        shown.fleet.ask("change", nodes)
        if pages:
            pages[0].wait_for_timeout(2000)
        else:
            time.sleep(2.0)
