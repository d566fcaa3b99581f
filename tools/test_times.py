"""Test times: which cases `make test` leaves out, and which tests begin first, by reports.

``python tools/test_times.py REPORT.xml ...`` says how long each run takes by the table as it is,
and ``--write`` writes the table anew. Reports are what `make test-all` and `make test-real` leave
in .venv/reports, made on a machine that did nothing else. The rule stands in CONTRIBUTING.md; the
stories are kept by hand. ``--files`` prints the files that have thorough cases.
"""

import argparse
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "thorough.toml"
# Each test function has so long in `make test`, on two idle cores.
SECONDS = 3.0
# Tests of which a case takes so long begin before others: what is short fills the end of a run.
_LONG_S = 5.0
# Tests of another run, in which nothing is thorough.
_REAL = "tests/real/"
_HEAD = """\
# Cases that `make test` leaves to `make test-thorough`, and seconds by which tests are put in
# order: written by tools/test_times.py, but for the stories, black-box tests of a whole subject,
# which are never left out.
"""


@dataclass(frozen=True)
class Table:
    """The stories, and of other functions that take long how many cases `make test` runs."""

    stories: tuple[str, ...]
    kept: Mapping[str, int]
    # Of the longest case of a function, where it is long.
    seconds: Mapping[str, int] = field(default_factory=dict)

    def cases(self, function: str, there: int) -> int:
        """Return how many of a function's cases `make test` runs."""
        return there if function in self.stories else min(self.kept.get(function, there), there)

    def files(self) -> list[str]:
        """Return the files that have thorough cases."""
        return sorted({function.partition("::")[0] for function in self.kept})


def read_table(path: Path = TABLE) -> Table:
    """Read the table."""
    content = tomllib.loads(path.read_text())
    return Table(tuple(content["stories"]), content["kept"], content["seconds"])


def read_times(reports: Iterable[Path]) -> dict[str, list[float]]:
    """Return how long the cases of each test function took, in their order, in seconds."""
    times: dict[str, list[float]] = defaultdict(list)
    for report in reports:
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            place = case.get("classname", "").replace(".", "/")
            # Behind a name may be its group.
            name = case.get("name", "").partition("[")[0].partition("@")[0]
            times[f"{place}.py::{name}"].append(float(case.get("time", "0")))
    return dict(times)


def choose(times: Mapping[str, Sequence[float]], stories: Sequence[str], seconds: float) -> Table:
    """Return a table by the rule: of each function the first cases, as many as fit in its time."""
    kept = {
        function: int(seconds * len(each) / sum(each))
        for function, each in sorted(times.items())
        if sum(each) > seconds and function not in stories and not function.startswith(_REAL)
    }
    longest = {function: round(max(each)) for function, each in sorted(times.items())}
    long = {function: took_s for function, took_s in longest.items() if took_s >= _LONG_S}
    return Table(tuple(sorted(stories)), kept, long)


def text_of(table: Table) -> str:
    """Return a table as TOML."""
    stories = "".join(f'    "{story}",\n' for story in table.stories)
    kept = "".join(f'"{function}" = {cases}\n' for function, cases in table.kept.items())
    seconds = "".join(f'"{function}" = {took_s}\n' for function, took_s in table.seconds.items())
    return f"{_HEAD}stories = [\n{stories}]\n\n[kept]\n{kept}\n[seconds]\n{seconds}"


def summary(times: Mapping[str, Sequence[float]], table: Table) -> str:
    """Say how many cases run, and how long they take together."""
    here, there, cases, all_cases = 0.0, 0.0, 0, 0
    for function, each in times.items():
        if function.startswith(_REAL):
            continue
        count = table.cases(function, len(each))
        here, there = here + sum(each[:count]), there + sum(each)
        cases, all_cases = cases + count, all_cases + len(each)
    return (
        f"make test: {cases} of {all_cases} cases, {here:.0f} of {there:.0f} s of one worker; "
        f"{len(table.stories)} stories, {len(table.kept)} functions of which cases are left out"
    )


def main(arguments: list[str]) -> int:
    """Do what the options say; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("reports", nargs="*", type=Path, metavar="REPORT", help="JUnit XML")
    parser.add_argument("--write", action="store_true", help="write tests/thorough.toml anew")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="the time of a function")
    parser.add_argument("--files", action="store_true", help="print the files of thorough cases")
    options = parser.parse_args(arguments)
    if options.files:
        print("\n".join(read_table().files()))
        return 0
    if not options.reports:
        parser.error("name a report; 'make test-all' leaves one in .venv/reports")
    try:
        times, table = read_times(options.reports), read_table()
    except (OSError, ElementTree.ParseError) as error:
        parser.error(f"{error}; 'make test-all' leaves its report in .venv/reports")
    if options.write:
        table = choose(times, table.stories, options.seconds)
        TABLE.write_text(text_of(table))
    print(summary(times, table))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
