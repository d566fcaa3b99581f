"""Cadence benchmark: what a fault costs, and what snapshots cost, as shipped and at every step.

The stall of a snapshot is measured for each size with a real rank and agent. Faults come at random
(seeded). Long rows run in virtual time around the real cadence; some run with real processes, each
twice: two minutes until the cadence is known, and then a fault about every 20 s.
"""

import argparse
import statistics
from collections.abc import Iterator, Sequence

from cadence.real_jobs import real_row
from cadence.rows import Cell, Row, Run
from cadence.virtual_jobs import VirtualJob
from harness.session import Benchmark, Part
from harness.waits import need_memory
from vault.nodes import bench_node, bench_rank

_MIB = 1 << 20
_SIZES = (_MIB, 32 * _MIB, 256 * _MIB, 2048 * _MIB)
_STEPS_S = (0.02, 0.2, 2.0, 20.0)
_REAL = (Cell(0.02, _MIB), Cell(0.2, 32 * _MIB), Cell(0.5, _MIB))
_REAL_FAULTS = 6
_SLOTS = 3
# The first snapshot into each slot maps it, and is not as later ones.
_FIRST = _SLOTS
_SAMPLES = 15
# Between two faults, on average; longer where a step is.
_MEAN_S, _MEAN_STEPS = 600.0, 180


def stalls(size_bytes: int, samples: int) -> list[float]:
    """Return what snapshots of a state stalled its rank, in seconds."""
    with (
        bench_node("node-1", _SLOTS) as node,
        bench_rank("vault.state_rank", node.environment(1), size_bytes, 1) as rank,
    ):
        found = []
        for step in range(1, samples + _FIRST + 1):
            found.append(rank.seconds("save_at_last", step))
            node.talk.ask("verified", step)
            node.talk.ask("recoverable", step)
        return found[_FIRST:]


def virtual_row(cell: Cell, found: Sequence[float], faults: int, repeats: int) -> Row:
    """Run a cell in virtual time, with the same seeds as shipped and at every step."""
    mean_s, stall_s = max(_MEAN_S, _MEAN_STEPS * cell.step_s), statistics.median(found)

    def run(every_step: bool) -> Run:
        runs = [
            VirtualJob(cell, stall_s, seed, every_step).run(faults, mean_s)
            for seed in range(repeats)
        ]
        lost = tuple(one for each in runs for one in each.lost)
        share = statistics.median(each.stall_share for each in runs)
        return Run(lost, share, runs[-1].every)

    return Row(cell, "virtual time", stall_s, mean_s, run(False), run(True))


def virtual_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows in virtual time. Raises SystemExit without the memory to measure copies."""
    need_memory((_SLOTS + 2) * _SIZES[-1])
    for size in _SIZES:
        found = stalls(size, _SAMPLES)
        for step_s in _STEPS_S:
            yield virtual_row(Cell(step_s, size), found, options.faults, options.repeats)


def real_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of real processes."""
    for seed, cell in enumerate(_REAL[: options.cells]):
        yield real_row(cell, min(options.faults, _REAL_FAULTS), seed)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--faults",
        type=int,
        default=10,
        metavar="N",
        help=f"of each run; with real processes {_REAL_FAULTS} at most",
    )
    words = "of real processes, how many rows"
    parser.add_argument("--cells", type=int, default=len(_REAL), metavar="N", help=words)


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[Part("virtual", 240.0, virtual_rows), Part("real", 1500.0, real_rows)],
    repeats=2,
    add_options=_add_options,
    quick={"repeats": 1, "faults": 2, "cells": 1},
)
