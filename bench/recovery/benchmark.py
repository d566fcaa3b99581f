"""Recovery benchmark: from a fault to the next new step, beside other launchers in one run.

Every round starts everything anew, runs the same script of four ranks, and kills one in its stride.
A new step is one above all that every rank had completed before. ``--only`` takes the name of a
part; a round of all takes about four minutes.
"""

import argparse
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator

from harness.figures import Figure, Series, show

PARTS = {
    "process": "recovery_process",
    "node": "recovery_node",
    "controller": "recovery_controller",
}


def measure(part: str, repeats: int, standby: bool) -> Iterator[Figure]:
    """Yield the figures of one part, after the load that the machine had before it."""
    yield Series(f"{part}: load average before", [os.getloadavg()[0]], "processes").figure()
    try:
        module = importlib.import_module(PARTS[part])
        yield from module.measure(repeats, standby)
    except (SystemExit, subprocess.SubprocessError) as error:
        print(f"{part}: {error}", file=sys.stderr)
        yield Figure(name=f"{part}: FAILED, not measured", value=0.0, unit="", met=False)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    parser.add_argument("--repeats", type=int, default=5, help="rounds to take the median of")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part, again for more")
    parser.add_argument(
        "--standby",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="with warm standby processes, as is the default of everstep run",
    )
    given = parser.parse_args()
    figures: list[Figure] = []
    for part in given.only or PARTS:
        print(f"{part} ...", file=sys.stderr, flush=True)
        figures += measure(part, given.repeats, given.standby)
    show(figures, given.json)


if __name__ == "__main__":
    main()
