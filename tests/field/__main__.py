"""Field: booted machines with the shipped units, jobs of users, faults for an hour; `make field`.

The run is in namespaces of its own, which end with it, however it ends. Each round is kept when it
is over: the same command goes on with the first round that is not there yet.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from field.faults.catalogue import KINDS
from field.jobs.shapes import SHAPES
from field.machines.image import REPOSITORY
from field.namespaces import run_inside
from field.observation.records import Round, read
from field.options import run_parser
from field.report import Report, figures, markdown, report, text


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return what the command line says."""
    parser = run_parser("make field", __doc__, machines=6, tracks=5)
    parser.add_argument("--minutes", type=float, default=60.0, help="of faults, in all rounds")
    parser.add_argument("--round-minutes", type=float, default=20.0, help="a fresh fleet each")
    parser.add_argument("--steps", type=int, default=300, help="of each job")
    parser.add_argument("--step-seconds", type=float, default=0.3)
    parser.add_argument(
        "--mode", default="", choices=("observe", "advise", "enforce"),
        help="of the controller (as shipped, advise; in every third round enforce)",
    )  # fmt: skip
    parser.add_argument("--shapes", nargs="*", default=[], choices=[one.name for one in SHAPES])
    parser.add_argument("--faults", nargs="*", default=[], choices=list(KINDS))
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Play the rounds that are missing, and report on all of them."""
    options = parse(arguments)
    folder = options.folder or REPOSITORY / f".venv/reports/field/seed-{options.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    if not options.report and (code := run_inside("field.inside", [str(folder), *arguments])):
        print(f"the field ended early with code {code}; the same command goes on")
        return code
    rounds = kept(folder)
    if not rounds:
        print(f"no round is kept in {folder}: leave --report out to play one")
        return 1
    made = report(rounds)
    print(_told(made, options))
    return 1 if made.violations or made.too_late else 0


def _told(made: Report, options: argparse.Namespace) -> str:
    if options.json:
        return json.dumps(figures(made), indent=1)
    return markdown(made) if options.markdown else text(made)


def kept(folder: Path) -> list[Round]:
    """Return the rounds that are kept, in order."""
    return [read(path) for path in sorted(folder.glob("round-*.json"))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
