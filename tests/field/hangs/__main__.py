"""Hangs: jobs of users under the shipped units hang, one after the other; how soon each trains on.

Booted machines as in the field, an unchanged script with two ranks on each of two, a third as its
spare. Four jobs at a time, with steps of 0.1 s. A rank is stopped (SIGSTOP), is killed, or holds
the interpreter's lock while it waits or computes for ever, at once or after two evaluations of
20 s; and what pauses for 20 s by itself has to be let alone: an evaluation, a loader, a save, a
packing that keeps the lock. Each run is kept when it is over: the
same command goes on with those that are missing.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from field.hangs.report import figures, markdown, text
from field.hangs.runs import KINDS, kept, left
from field.machines.image import REPOSITORY
from field.namespaces import run_inside
from field.options import run_parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return what the command line says."""
    parser = run_parser("make field-hangs", __doc__, machines=5, tracks=4)
    parser.add_argument("--repeats", type=int, default=20, help="of each kind (%(default)s)")
    names = [one.name for one in KINDS]
    parser.add_argument(
        "--only", nargs="*", default=[], choices=names, metavar="KIND", help="; ".join(names)
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run what is missing, and report on all."""
    options = parse(arguments)
    folder = options.folder or REPOSITORY / f".venv/reports/field/hangs-{options.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "runs.jsonl"
    missing = left(kept(path), options.repeats, tuple(options.only))
    if (
        not options.report
        and missing
        and (code := run_inside("field.hangs.inside", [str(path), *arguments]))
    ):
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
