"""Recovery benchmark: from a fault to the next new step, beside other launchers in one run.

Every round starts everything anew, runs the same script of four ranks, and kills one in its stride.
A new step is one above all that every rank had completed before. ``--only`` takes the name of a
part; a round of all takes about four minutes.
"""

import argparse
import os
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module

from harness.session import Benchmark, Part
from harness.table import Row, row

# About how long each takes.
_PARTS = {"process": 700.0, "node": 150.0, "controller": 300.0}


def measure(part: str, options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of one part, after the load that the machine had before it."""
    yield row(f"{part}: load average before", [os.getloadavg()[0]], "processes")
    rows: Callable[[int, bool], Iterator[Row]] = import_module(f"recovery.{part}").measure
    yield from rows(options.repeats, options.standby)


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[Part(name, seconds, partial(measure, name)) for name, seconds in _PARTS.items()],
    repeats=5,
    add_options=lambda parser: parser.add_argument(
        "--standby",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="with warm standby processes, as is the default of everstep run",
    ),
)
