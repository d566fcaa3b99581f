"""Liveness benchmark: fault, time to the verdict, and who was harmed without need.

Rows of processes are a controller and six agents in network namespaces of this machine, with a job
of three nodes whose ranks make ten steps a second; they need root and `ip`. Rows in virtual time
are the real core in the simulation, once for each seed. A target is the most that any round may
take.
"""

import argparse
from collections.abc import Iterator

from harness.session import Benchmark, Part
from liveness import real_faults, virtual_faults
from liveness.rows import Row


def real(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of processes."""
    return real_faults.rows(_asked(options, list(real_faults.CASES)))


def virtual(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows in virtual time."""
    for name in _asked(options, list(virtual_faults.CASES)):
        yield virtual_faults.measured(virtual_faults.CASES[name])


def _asked(options: argparse.Namespace, known: list[str]) -> list[str]:
    return [name for name in known if options.rows is None or name in options.rows]


_NAMES = [*real_faults.CASES, *virtual_faults.CASES]
BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[Part("processes", 1200.0, real), Part("virtual", 400.0, virtual)],
    add_options=lambda parser: parser.add_argument(
        "--rows", nargs="+", choices=_NAMES, metavar="ROW", help=f"of {', '.join(_NAMES)}"
    ),
)
