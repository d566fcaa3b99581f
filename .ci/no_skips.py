"""Fails when a test was skipped that should have run: ``python .ci/no_skips.py REPORT.xml ...``."""

import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

# Hardware that no CI machine has, and what its sandbox forbids (tests/real/sandbox.py tries it);
# every other reason is something that CI should have installed.
ALLOWED_REASONS = ("needs a GPU", "needs InfiniBand", "the sandbox denies")


def skipped(report: Path) -> Iterator[str]:
    """Yield a line for every test of a JUnit report that was skipped without an allowed reason."""
    for case in ElementTree.parse(report).iter("testcase"):
        skip = case.find("skipped")
        reason = "" if skip is None else skip.get("message", "")
        if skip is not None and not reason.startswith(ALLOWED_REASONS):
            yield f"{case.get('classname')}.{case.get('name')}: {reason}"


def totals(report: Path) -> str:
    """Return what ran, in the words of pytest's closing line."""
    suites = list(ElementTree.parse(report).iter("testsuite"))
    counts = {key: sum(int(suite.get(key, "0")) for suite in suites) for key in _COUNTS}
    seconds = sum(float(suite.get("time", "0")) for suite in suites)
    return (
        f"{report.name}: "
        + ", ".join(f"{n} {key}" for key, n in counts.items())
        + (f" in {seconds:.0f} s")
    )


_COUNTS = ("tests", "failures", "errors", "skipped")


def main(arguments: list[str]) -> int:
    """Print what ran; return 1 when a test was skipped, or when a report has no test at all."""
    reports = [Path(argument) for argument in arguments]
    for report in reports:
        print(totals(report))
    lines = [line for report in reports for line in skipped(report)]
    for line in lines:
        print(f"skipped: {line}", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
