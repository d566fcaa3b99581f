"""Which sources of hangs each version of torch has: ``torch_versions.py 2.4.1 2.6.0 …``.

For each version it makes an environment of its own, installs torch's wheel of the package index
(gigabytes of CUDA; no GPU is needed), runs gloo jobs of two ranks that hang, as hang_gpu.py does
with ``--cpu``, prints a row of the table in docs/hang-sources.md, and removes the environment.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_PACKAGES = ("bench", "common", "trainer")
_PARTS = "two,timeout"
_SECONDS = 240.0
_MOVES_MIN = 3
# What is asked is which sources there are, also on a machine that has much else to do.
_LOOK_SECONDS = 8.0

# What was found, by part and what was asked for.
Found = Mapping[tuple[str, str], str]


def _two(what: str, pattern: str) -> Callable[[Found], bool]:
    """Return whether a cell of the job of two ranks is so."""
    return lambda found: bool(re.search(pattern, found.get(("two ranks", what), "")))


def _all(*conditions: Callable[[Found], bool]) -> Callable[[Found], bool]:
    return lambda found: all(condition(found) for condition in conditions)


def _frontiers_move(found: Found) -> bool:
    moves = re.findall(r"(\d+) moves", found.get(("two ranks", "skip: frontier"), ""))
    return len(moves) == 2 and all(int(one) >= _MOVES_MIN for one in moves)


COLUMNS: dict[str, Callable[[Found], bool]] = {
    "worker server, ping": _two("sleep, rank 0: ping", "True"),
    "recorder while it hangs": _two("sleep, rank 0: recorder", "waits in all_reduce"),
    "GIL probe": _all(
        _two("gil, rank 1: GIL held", "True"), _two("gil, rank 0: GIL held", "False")
    ),
    "Python stack": _two("sleep, rank 1: Python stack", r"hang_gpu_rank\.py"),
    "stack by signal while the GIL is held": _two("gil, rank 1: Python stack", "_hold_gil"),
    "frontier": _frontiers_move,
    "process state, native stack": _all(
        _two("stop, rank 1: state", "^stopped"), _two("sleep, rank 1: native stack", "python")
    ),
    "libraries": _two("sleep, rank 0: libraries", r"torch \d"),
    "sleep named": _two("sleep: verdict", r"^cpu_side, culprits 1:"),
    "GIL named": _two("gil: verdict", r"^gil_held, culprits 1:"),
    "frozen named": _two("stop: verdict", r"^frozen, culprits 1:"),
    "skip named": _two("skip: verdict", r"^desync, culprits 1:"),
    "timeout told from a fault": lambda found: found.get(
        ("timeout", "its end is classified as"), ""
    ).startswith("collective_timeout"),
    "dump at exit": lambda found: found.get(("timeout", "dumps at exit"), "") == "exit-0",
}


def measure(version: str, options: Sequence[str]) -> dict[str, object]:
    """Return what a version has. Raises CalledProcessError where it cannot be installed."""
    with tempfile.TemporaryDirectory(prefix=f"torch-{version}-") as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        python = str(folder / "venv/bin/python")
        install = [python, "-m", "pip", "install", "-q", "--no-cache-dir", *options]
        subprocess.run([*install, f"torch=={version}", "numpy"], check=True)
        return row(run(python, folder))


def run(python: str, out: Path) -> Found:
    """Run the jobs by an interpreter that has torch; return what was found."""
    path = os.pathsep.join(str(_ROOT / one) for one in _PACKAGES)
    command = [python, str(_ROOT / "bench/hang_gpu.py"), "--cpu", "--only", _PARTS]
    subprocess.run(
        [*command, "--seconds", str(_SECONDS), "--look-seconds", str(_LOOK_SECONDS)],
        env={**os.environ, "PYTHONPATH": path, "OUT": str(out)},
        stdout=sys.stderr,
        check=True,
    )
    cells = json.loads((out / "hang_gpu.json").read_text())
    return {(one["part"], one["what"]): one["found"] for one in cells}


def row(found: Found) -> dict[str, object]:
    """Return a row of the table. Pure."""
    recorder = found.get(("two ranks", "sleep, rank 0: recorder"), "")
    schema = re.match(r"schema ([\d.]+)", recorder)
    return {
        "torch": found.get(("two ranks", "torch"), "not run"),
        "schema": schema[1] if schema else "",
        **{name: has(found) for name, has in COLUMNS.items()},
        "handlers": found.get(("two ranks", "handlers"), ""),
        "dumps": found.get(("two ranks", "dumps"), ""),
    }


def main(arguments: Sequence[str]) -> None:
    """Print a row for each version."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", help="versions of torch on the package index")
    parser.add_argument("--python", default="", help="ask an interpreter that has torch already")
    parser.add_argument("--pip", action="append", default=[], help="an option for pip install")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows = [measure(one, options.pip) for one in options.versions]
    if options.python:
        with tempfile.TemporaryDirectory() as out:
            rows.append(row(run(options.python, Path(out))))
    for one in rows:
        if options.json:
            print(json.dumps(one))
        else:
            print("\n".join(f"{name:40} {_word(value)}" for name, value in one.items()))


def _word(value: object) -> object:
    return {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value


if __name__ == "__main__":
    main(sys.argv[1:])
