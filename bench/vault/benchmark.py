"""Vault benchmark: each figure beside its peer and the physical limit, in one run, as ratios.

Whatever a ratio compares ran in turn in this run; a ratio is the median of those of each round.
All together take 18 GiB of memory at most, ``--only tls`` 7 GiB.
"""

import argparse
import os
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module

from harness.session import Benchmark, Part
from harness.table import Row, row

# About how long each takes. A part is imported where it is measured: some need torch.
_PARTS = {
    **{"stall": 150.0, "overlap": 60.0, "replication": 60.0, "tls": 60.0},
    **{"hashing": 10.0, "restore": 120.0},
}


def measure(part: str, options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of one part, after the load that the machine had before it."""
    yield row(f"{part}: load average before", [os.getloadavg()[0]], "processes")
    rows: Callable[[int], Iterator[Row]] = import_module(f"vault.{part}").measure
    yield from rows(options.repeats)


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[Part(name, seconds, partial(measure, name)) for name, seconds in _PARTS.items()],
    repeats=7,
    quick={"repeats": 1},
)
