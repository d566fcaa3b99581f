"""Failover benchmark: how long a fleet is without a controller, and what a takeover costs it.

Two controllers with one journal in a real PostgreSQL (fsync on), each with a network, a count of
processes and a host name of its own, so that neither sees that the other's process has ended. 64
nodes with 8 ranks in 20 jobs are simulated with the agent's own uplink and outbox; two more jobs
are real agents, launchers and ranks. All of it is on this machine, with TLS; it needs root, `ip`
and PostgreSQL. What a fault costs is told as the time that 95 % of the rounds do not exceed.
"""

import argparse
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from functools import partial

from failover import load
from failover.rows import Samples, rows_of
from harness.processes import ROOT, module_command, running, with_paths
from harness.session import Benchmark, Part
from harness.table import Row

# So many hand-overs and pauses are made in the time of a round of the others.
_KILLS_PER_ROUND = 5


def measure(options: argparse.Namespace, part: str) -> Iterator[Row]:
    """Yield the rows of a part, which runs in namespaces of its own."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise SystemExit("this part needs root and ip (apt: iproute2)")
    rounds = {
        "kills": options.repeats * _KILLS_PER_ROUND,
        "pause": max(1, options.repeats // 4),
    }.get(part, options.repeats)
    words = (part, rounds, options.pause, options.seed)
    command = [
        *["unshare", "--net", "--pid", "--fork", "--kill-child=TERM", "--mount-proc"],
        *module_command("failover.inside", *words),
    ]
    paths = [ROOT / one for one in ("agent", "common", "controller", "proto", "trainer")]
    with running(command, with_paths(*paths), may_end=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield from rows_of(Samples(**json.loads(line)))
        if process.wait():
            raise SystemExit(f"the processes ended with {process.returncode}")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pause", type=float, default=12.0, metavar="S", help="how long the active one stands"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the instants that are random")


def _parts(named: Sequence[tuple[str, float]]) -> Iterator[Part]:
    for name, seconds in named:
        yield Part(name, seconds, partial(measure, part=name))


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[
        *_parts(
            [
                ("killed", 420.0),
                ("stopped", 600.0),
                ("cut", 600.0),
                ("kills", 700.0),
                ("hand-over", 150.0),
                ("pause", 150.0),
            ]
        ),
        Part("processor", 300.0, load.measure),
    ],
    repeats=20,
    seconds=20.0,
    add_options=_add_options,
    quick={"repeats": 2, "seconds": 10.0},
)
