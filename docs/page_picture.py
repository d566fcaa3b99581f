"""Takes docs/page.png, the picture of the page in README.md, of a real demo in Chromium.

It needs playwright (of the extra dev) and /usr/bin/chromium (apt: chromium), and two minutes.
"""

import argparse
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

from playwright.sync_api import FloatRect, Page, sync_playwright

PICTURE = Path(__file__).with_name("page.png")
_CHROMIUM = "/usr/bin/chromium"
_ADDRESS = re.compile(r"http://\S+")
_WIDTH, _HEIGHT = 1100, 700
_MARGIN = 16
_PATIENCE_MS = 60_000
_BYTES_MAX = 150_000


def main() -> None:
    """Take the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=PICTURE, help="default: %(default)s")
    output: Path = parser.parse_args().output
    line = [sys.executable, "-m", "everstep.entry", "demo", "--page", "--json"]
    demo = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert demo.stderr is not None
        _take(_address(demo.stderr), output)
    finally:
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=60)
    taken = output.stat().st_size
    if taken > _BYTES_MAX:
        sys.exit(f"{output} has {taken} bytes, more than {_BYTES_MAX}: take a smaller part of it")
    print(f"written: {output}, {taken} bytes")


def _address(said: IO[str]) -> str:
    for line in said:
        if found := _ADDRESS.search(line):
            return found[0]
    sys.exit("the demo said no address: run 'everstep demo --page'")


def _take(address: str, output: Path) -> None:
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
        page.set_default_timeout(_PATIENCE_MS)
        page.goto(address)
        while not page.get_by_role("link", name="demo", exact=True).count():
            page.wait_for_timeout(1000)
            page.reload()
        page.get_by_role("link", name="demo", exact=True).click()
        _until_third_incident(page)
        # As far as the curves, which are below the picture's edge.
        curves = page.get_by_role(
            "heading", name="Steps and effective training time"
        ).bounding_box()
        assert curves is not None
        whole: FloatRect = {"x": 0, "y": 0, "width": _WIDTH, "height": curves["y"] - _MARGIN}
        page.screenshot(path=output, clip=whole, full_page=True)
        browser.close()


def _until_third_incident(page: Page) -> None:
    """Wait until the job has gone on without the GPU that fails last."""
    while page.locator('a[href^="/incident/"]').count() < 3 or page.get_by_text("open").count():
        page.wait_for_timeout(2000)
        page.reload()


if __name__ == "__main__":
    main()
