"""Hangs: jobs of users under the shipped units hang, one after the other; how soon each trains on.

Booted machines as in the field, unchanged scripts with two ranks on each of two, a third as their
spare: one of numpy and sockets, one of torch (DistributedDataParallel over gloo). Four jobs at a
time, of which two may have torch, with steps of 0.1 s. A rank is stopped (SIGSTOP), is killed, or
holds the interpreter's lock while it waits or computes for ever, at once or after two evaluations
of 20 s; and what pauses for 20 s by itself has to be let alone: an evaluation, a loader, a save, a
packing that keeps the lock. Each run is kept when it is over: the same command goes on with those
that are missing.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from field.hangs.kinds import KINDS, SCRIPTS, cases
from field.hangs.report import figures, markdown, text
from field.hangs.runs import kept, left
from field.machines.image import REPOSITORY
from field.namespaces import run_inside
from field.options import run_parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return what the command line says."""
    parser = run_parser("make field-hangs", __doc__, machines=5, tracks=4)
    parser.add_argument(
        "--repeats", type=int, default=10, help="of each kind with each script (%(default)s)"
    )
    scripts, kinds = [one.name for one in SCRIPTS], [one.name for one in KINDS]
    parser.add_argument(
        "--scripts",
        nargs="+",
        default=scripts,
        choices=scripts,
        help="unchanged ones, of these packages (all)",
    )
    parser.add_argument(
        "--only", nargs="*", default=[], choices=kinds, metavar="KIND", help="; ".join(kinds)
    )
    options = parser.parse_args(arguments)
    needed = max(one.shape.torch_ranks for one in cases(options.scripts))
    if options.torch_ranks < needed:
        parser.error(f"--torch-ranks: a job has {needed}; leave torch out by --scripts numpy")
    return options


def main(arguments: Sequence[str]) -> int:
    """Run what is missing, and report on all."""
    options = parse(arguments)
    folder = options.folder or REPOSITORY / f".venv/reports/field/hangs-{options.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "runs.jsonl"
    if not options.report and (code := _play(options, path, arguments)):
        print(f"it ended early with code {code}; the same command goes on")
        return code
    found = kept(path)
    if not found:
        print(f"no run is kept in {path}: leave --report out")
        return 1
    if options.json:
        print(json.dumps(figures(found), indent=1))
    else:
        print(markdown(found) if options.markdown else text(found))
    return 1 if any(one["missed"] for one in figures(found)) else 0


def _play(options: argparse.Namespace, path: Path, arguments: Sequence[str]) -> int:
    """Run what is missing; return an exit code."""
    for name in options.scripts:
        if find_spec(name) is None:
            print(f"{name} is not here: make field-hangs installs it, --scripts leaves it out")
            return 1
    if not left(kept(path), options.repeats, options.scripts, options.only):
        return 0
    return run_inside("field.hangs.inside", [str(path), *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
