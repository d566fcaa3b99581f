"""Browser for tests of the page: what it complains of, how it looks, and who cannot use it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

CHROMIUM = Path("/usr/bin/chromium")
# A telephone, a laptop, and a screen on a wall.
SIZES = {"small": (390, 844), "medium": (1280, 900), "large": (1920, 1080)}


@dataclass(frozen=True, slots=True)
class Visit:
    """A page in a browser, and all that its console and its scripts have complained of."""

    page: "Page"
    complaints: list[str] = field(default_factory=list)

    def hear(self, said: "ConsoleMessage") -> None:
        """Take what is written to the console."""
        self.complaints.append(f"{said.text} ({said.location['url']})")

    def violations(self, *rules: str) -> list[str]:
        """Return what keeps people from using what is shown, by some or all rules of axe-core."""
        options = {"resultTypes": ["violations"]} | ({"runOnly": [*rules]} if rules else {})
        self.page.evaluate(_axe())
        found = self.page.evaluate("options => axe.run(document, options)", options)["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        script = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(script))


def _axe() -> str:
    """Return the source of axe-core, which a package for tests brings."""
    return resources.files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")


@contextmanager
def browser() -> "Iterator[Browser]":
    """Yield a browser without a screen."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        found = started.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            yield found
        finally:
            found.close()


def visit(running: "Browser", address: str) -> Visit:
    """Return a page that was let in by an address, in a context of its own."""
    width, height = SIZES["medium"]
    page = running.new_context(viewport={"width": width, "height": height}).new_page()
    page.set_default_timeout(60_000)
    made = Visit(page)
    page.on("console", lambda said: made.hear(said))
    page.on("pageerror", lambda error: made.complaints.append(str(error)))
    page.goto(address)
    return made
