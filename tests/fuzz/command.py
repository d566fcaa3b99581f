"""Fuzz of every wire format: structured cases, guided by coverage, to decoder and handler.

    python tests/fuzz --seconds 300 [--corpus DIR] [--format NAME] [--cases N] [--json]
    python tests/fuzz --sockets --cases 10000
    python tests/fuzz --format NAME --repeat FIND

``--seconds`` is shared by the formats. With ``--corpus`` the next run goes on where this one ended.
It ends with status 1 when something was found; then it prints the command that repeats it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.processes import with_paths
from harness.table import lines

from fuzz.formats import FORMATS, load_format
from fuzz.session import repeat
from fuzz.sockets import SocketRun, fuzz_sockets

# A process that stands still in one case, beyond its seconds.
_STUCK_S = 300.0
_HEAD = (
    "format",
    "cases",
    "cases/s CPU",
    "lines covered",
    "slowest, ms CPU",
    "growth, KiB",
    "finds",
)
_SOCKETS_HEAD = ("format", "cases", "cases/s", "memory of the daemon, KiB", "finds")


@dataclass(frozen=True, slots=True)
class FormatRow:
    """What all runs of a format have come to. Times are CPU; ``handled`` is without the engine."""

    format: str
    cases: int
    cases_per_s: float
    covered: int
    lines: int
    slowest_ms: float
    growth_bytes: int
    finds: dict[str, str]


def main() -> int:
    """Fuzz, or repeat a find; return the exit status."""
    options = _parser().parse_args()
    names = [options.format] if options.format else list(FORMATS)
    if options.repeat:
        return _repeat(options.format, options.repeat)
    if options.sockets:
        return _sockets(names, options)
    with tempfile.TemporaryDirectory() as passing:
        folder = (options.corpus or Path(passing)).absolute()
        seconds = options.seconds / len(names)
        rows = [_fuzzed(name, folder, seconds, options) for name in names]
        _show(rows, options.json)
        _tell_finds(rows, folder)
    return 1 if any(row.finds for row in rows) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("fuzz", description="Fuzz every wire format.")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    parser.add_argument("--seconds", type=float, default=10.0, help="shared by the formats")
    parser.add_argument("--format", choices=list(FORMATS), help="this format only")
    parser.add_argument("--cases", type=int, default=10**9, help="at most so many of a format")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers")
    parser.add_argument("--corpus", type=Path, help="folder in which cases and finds are kept")
    parser.add_argument("--repeat", type=Path, metavar="FIND", help="file of a find, with --format")
    parser.add_argument("--sockets", action="store_true", help="real daemons, real sockets")
    return parser


def _fuzzed(name: str, folder: Path, seconds: float, options: argparse.Namespace) -> FormatRow:
    """Fuzz a format in a process of its own; return its row."""
    home = folder / name.replace(" ", "-")
    home.mkdir(parents=True, exist_ok=True)
    print(f"{name}: {seconds:.0f} s", file=sys.stderr)
    words = [name, str(home), str(options.cases), str(seconds), str(options.seed)]
    with (home / "log").open("w") as log:
        _run("fuzz.guided", words, seconds + _STUCK_S, log)
    state = json.loads((home / "state.json").read_text())
    measured = json.loads(_run("fuzz.covered_lines", [name, str(home)], _STUCK_S).splitlines()[-1])
    return FormatRow(
        format=name,
        cases=state["cases"],
        cases_per_s=state["cases"] / state["cpu_s"],
        covered=measured["covered"],
        lines=measured["lines"],
        slowest_ms=state["slowest_ms"],
        growth_bytes=state["growth_bytes"],
        finds=state["finds"],
    )


def _run(module: str, words: Sequence[str], patience_s: float, log: Any = None) -> str:  # noqa: ANN401
    ended = subprocess.run(
        [sys.executable, "-m", module, *words],
        env=with_paths(),
        stdout=subprocess.PIPE if log is None else log,
        stderr=sys.stderr if log is None else log,
        text=True,
        timeout=patience_s,
        check=False,
    )
    return ended.stdout or ""


def _repeat(name: str, path: Path) -> int:
    found = repeat(load_format(name), path)
    print("\n".join(found) or "nothing is found by these cases any more")
    return 1 if found else 0


def _show(rows: Iterable[FormatRow], as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return
    for line in lines(_HEAD, [_cells(row) for row in rows]):
        print(line)


def _cells(row: FormatRow) -> tuple[str, ...]:
    share = f"{row.covered} of {row.lines} ({row.covered / max(1, row.lines):.0%})"
    return (
        row.format,
        str(row.cases),
        f"{row.cases_per_s:.0f}",
        share,
        f"{row.slowest_ms:.0f}",
        f"{row.growth_bytes / 1024:.0f}",
        str(len(row.finds)),
    )


def _tell_finds(rows: Iterable[FormatRow], folder: Path) -> None:
    for row in rows:
        for kind, name in row.finds.items():
            path = folder / row.format.replace(" ", "-") / "finds" / f"{name}.json"
            command = f"python tests/fuzz --format '{row.format}' --repeat {path}"
            print(f"found: {kind}\n  repeat it with: {command}", file=sys.stderr)


def _sockets(names: Sequence[str], options: argparse.Namespace) -> int:
    runs = fuzz_sockets(names, options.cases if options.cases < 10**9 else 10_000, options.seed)
    if options.json:
        print(json.dumps([asdict(run) for run in runs], indent=1))
    else:
        for line in lines(_SOCKETS_HEAD, [_socket_cells(run) for run in runs]):
            print(line)
    for run in runs:
        for find in run.finds:
            print(f"found: {run.format}: {find}", file=sys.stderr)
    return 1 if any(run.finds for run in runs) else 0


def _socket_cells(run: SocketRun) -> tuple[str, ...]:
    grown = f"{run.growth_bytes / 1024:.0f}"
    return run.format, str(run.cases), f"{run.cases_per_s:.0f}", grown, str(len(run.finds))
