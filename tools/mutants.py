"""Mutants: faults that are put into the source on purpose, each of which a named test must notice.

They were chosen before the source tree was rebuilt, ten for each package: an inverted condition,
a forgotten notification or reset, a limit that is off by one, a swapped cause. ``before`` says
where the fault is in the old tree, and is run there with ``--side before``; the same fault is run
in HEAD, where ``after`` says what it is there; else the same words are looked for in the same
component and in common. Each runs in a temporary copy. The script fails when one survives or has
no place.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import count
from pathlib import Path
from queue import SimpleQueue

from source_tree import COMPONENTS, read_tree, unpacked
from test_mapping import collect_tests, map_tests, read_moves, renamed_files

ROOT = Path(__file__).resolve().parents[1]
# The last commit before the rebuild (its source is that of 836194a), with tests for survivors.
BEFORE = "2fe2267"
# A mutant may make a loop endless; the narrow tests take seconds.
_LIMIT_S = 180
_TESTS_FAILED = 1
# Seconds between the times of changed files: Python takes source of equal time and size for equal.
_TIMES = count(1_000_000_000, 10)


@dataclass(frozen=True)
class Place:
    """Place of a fault: the text of a file that it replaces, once."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """One fault, what it breaks, and the tests that notice it."""

    id: str
    breaks: str
    before: Place
    after: Place | None
    tests: tuple[str, ...]
    # Where other tests than these notice it in newer trees; empty: the same, wherever they are.
    tests_after: tuple[str, ...] = ()


class Verdict(Enum):
    """Fate of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    UNPLACED = "does not apply"


@dataclass(frozen=True)
class Outcome:
    """A mutant's verdict, with what there is to say about it."""

    mutant: Mutant
    verdict: Verdict
    detail: str = ""

    def line(self) -> str:
        """Return it in one line."""
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.verdict.value:14} {self.mutant.id:16} {self.mutant.breaks}{detail}"


def read_mutants(folder: Path, package: str = "") -> list[Mutant]:
    """Read the tables, or the one of a package; raises LookupError where there is none."""
    tables = sorted(folder.glob(f"{package or '*'}.toml"))
    if not tables:
        raise LookupError(f"no mutants of {package or 'any package'} in {folder}")
    return [
        Mutant(
            row["id"],
            row["breaks"],
            Place(**row["before"]),
            Place(**row["after"]) if "after" in row else None,
            tuple(row["tests"]),
            tuple(row.get("tests_after", ())),
        )
        for table in tables
        for row in tomllib.loads(table.read_text())["mutant"]
    ]


# --- where a mutant goes -------------------------------------------------------------------------


def place_before(root: Path, mutant: Mutant) -> Place:
    """Return the place in the old tree; raises LookupError where its text is not there once."""
    return _checked(root, mutant.before)


def place_after(root: Path, mutant: Mutant) -> Place:
    """Return the place in a newer tree; raises LookupError where its text is not there once."""
    if mutant.after is not None:
        return _checked(root, mutant.after)
    old, component = mutant.before.old, mutant.before.file.partition("/")[0]
    texts = {file.path: file.text for file in read_tree(root).files}
    if texts.get(mutant.before.file, "").count(old) == 1:
        return mutant.before
    found = {path: text.count(old) for path, text in texts.items() if old in text}
    near = (f"{component}/", "common/")
    found = {path: times for path, times in found.items() if path.startswith(near)}
    if sum(found.values()) != 1:
        where = ", ".join(found) or "nowhere"
        raise LookupError(f"its text is found in {where}; say in `after` where it is now")
    return Place(next(iter(found)), old, mutant.before.new)


def _checked(root: Path, place: Place) -> Place:
    file = root / place.file
    times = file.read_text().count(place.old) if file.exists() else 0
    if times != 1:
        raise LookupError(f"{place.file} has its text {times} times instead of once")
    return place


# --- which tests are run -------------------------------------------------------------------------


def places_of_tests(root: Path, before: str, now: Path) -> dict[str, str]:
    """Return where the tests of an old revision are in a newer tree; the lost are left out."""
    with unpacked(root, before) as folder:
        old = collect_tests(folder)
    there = collect_tests(now)
    rows = read_moves(now / "tools" / "test_moves")
    moved = map_tests(old, there, rows, renamed_files(root, before)).moved
    return moved | {test: test for test in there}


def run_tests(root: Path, tests: Iterable[str]) -> "subprocess.CompletedProcess[str]":
    """Run tests in a copy of the tree until one fails; raises TimeoutExpired."""
    packages = [*COMPONENTS, "bench", "docs", "tests", "tools"]
    environment = os.environ | {
        # Of processes that a test starts, too: they would import the checkout's packages.
        "PYTHONPATH": ":".join(str(root / package) for package in packages),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    options = ["-q", "-x", "--tb=short", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
    # The same examples in every run: a fault must not be noticed by luck.
    options += ["-p", "_hypothesis_pytestplugin", "--hypothesis-seed=0"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )


@contextmanager
def mutated(root: Path, place: Place) -> Iterator[None]:
    """Put a fault into a copy of the tree for a while."""
    file = root / place.file
    text = file.read_text()
    _write(file, text.replace(place.old, place.new))
    try:
        yield
    finally:
        _write(file, text)


def _write(file: Path, text: str) -> None:
    file.write_text(text)
    time_s = next(_TIMES)
    os.utime(file, (time_s, time_s))


def outcome(root: Path, mutant: Mutant, place: Place, tests: Iterable[str]) -> Outcome:
    """Run a mutant's tests with its fault in a copy of the tree."""
    with mutated(root, place):
        try:
            ran = run_tests(root, tests)
        except subprocess.TimeoutExpired:
            return Outcome(mutant, Verdict.KILLED, "its tests did not end")
    if ran.returncode == _TESTS_FAILED:
        return Outcome(mutant, Verdict.KILLED)
    if ran.returncode == 0:
        return Outcome(mutant, Verdict.SURVIVED)
    last = ran.stdout.strip().splitlines()[-1:] or [ran.stderr.strip()]
    return Outcome(mutant, Verdict.UNPLACED, f"its tests could not run: {last[0]}")


# --- one side, whole -----------------------------------------------------------------------------


class Side:
    """One tree, in which mutants are placed and their tests are found."""

    def __init__(self, tree: Path, places: dict[str, str] | None) -> None:
        self._tree = tree
        # Where the old tests are in this tree; None: this is the old tree.
        self._places = places

    def place(self, mutant: Mutant) -> Place:
        """Return where a mutant goes; raises LookupError where it has no place."""
        find = place_before if self._places is None else place_after
        return find(self._tree, mutant)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return a mutant's tests by their ids here; raises LookupError for one that is gone."""
        if self._places is None:
            return list(mutant.tests)
        tests = mutant.tests_after or mutant.tests
        gone = [test for test in tests if test.split("[")[0] not in self._places]
        if gone:
            raise LookupError(f"its test {gone[0]} is gone; say in `tests_after` what notices it")
        return [self._places[test.split("[")[0]] for test in tests]

    def judge(self, copies: "SimpleQueue[Path]", mutant: Mutant) -> Outcome:
        """Run one mutant in whichever copy of the tree is free."""
        copy = copies.get()
        try:
            done = outcome(copy, mutant, self.place(mutant), self.tests_of(mutant))
        except LookupError as error:
            done = Outcome(mutant, Verdict.UNPLACED, str(error))
        finally:
            copies.put(copy)
        print(done.line(), flush=True)
        return done


def tests_that_fail_anyway(side: Side, tree: Path, mutants: list[Mutant]) -> str:
    """Return what tests say that fail without any fault; empty when all pass, as they must."""
    tests: set[str] = set()
    for mutant in mutants:
        with suppress(LookupError):
            tests.update(side.tests_of(mutant))
    ran = run_tests(tree, sorted(tests))
    return ran.stdout + ran.stderr if ran.returncode else ""


def run_side(tree: Path, side: Side, mutants: list[Mutant], workers: int) -> list[Outcome] | str:
    """Run mutants in copies of a tree; a text says why nothing can be said."""
    if broken := tests_that_fail_anyway(side, tree, mutants):
        return broken
    copies: SimpleQueue[Path] = SimpleQueue()
    for number in range(workers):
        copies.put(shutil.copytree(tree, tree / f".copy-{number}", ignore=_no_copies))
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(partial(side.judge, copies), mutants))


def _no_copies(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(".copy-")]


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the mutants; all of them must be killed.")
    parser.add_argument("--side", choices=("before", "after"), default="after")
    parser.add_argument("--package", default="", help="one table of tools/mutants; all by default")
    parser.add_argument("--only", default="", metavar="ID", help="one mutant")
    parser.add_argument("--places", action="store_true", help="only say where each one goes")
    parser.add_argument("--workers", type=int, default=2, help="how many run at once")
    parser.add_argument("--before", default=BEFORE, metavar="REV", help="the old tree")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree; this one by default")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run the mutants that the options name; return the exit status."""
    options, began = _options(arguments), time.monotonic()
    mutants = read_mutants(options.root / "tools" / "mutants", options.package)
    mutants = [mutant for mutant in mutants if options.only in ("", mutant.id)]
    before = options.side == "before"
    with unpacked(options.root, options.before if before else "HEAD") as tree:
        places = None if before else places_of_tests(options.root, options.before, tree)
        side = Side(tree, places)
        if options.places:
            return _print_places(side, mutants)
        outcomes = run_side(tree, side, mutants, options.workers)
    if isinstance(outcomes, str):
        print(f"{outcomes}\nTests fail without any mutant, so nothing can be said.")
        return 1
    return _print_summary(outcomes, time.monotonic() - began)


def _print_summary(outcomes: list[Outcome], took_s: float) -> int:
    counts = Counter(one.verdict for one in outcomes)
    told = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)
    print(f"{len(outcomes)} mutants in {took_s:.0f} s: {told}")
    alive = [one for one in outcomes if one.verdict is not Verdict.KILLED]
    for one in alive:
        print(one.line())
    return 1 if alive else 0


def _print_places(side: Side, mutants: list[Mutant]) -> int:
    missing = 0
    for mutant in mutants:
        try:
            print(f"{mutant.id:16} {side.place(mutant).file} {' '.join(side.tests_of(mutant))}")
        except LookupError as error:
            missing += 1
            print(f"{mutant.id:16} {mutant.before.file}: {error}")
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
