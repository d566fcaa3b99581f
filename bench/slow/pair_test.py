"""Pair test on the GPUs of this machine: what it measures, how far repeats and rounds lie apart.

    PYTHONPATH=agent python bench pair-test [--rounds N] [--host] [--held] [--json]

Each round is a process of its own, as the agent starts it. It takes Python, the NVIDIA driver and
nothing else, and leaves the GPU's settings alone. ``--held``: shows as well that a GPU on which
another process works is not tested. ``spread`` is slowest minus fastest of the repeats of a round,
the median of all rounds; ``rounds`` is the slowest round's median over the fastest's: the test
calls a node slow that takes more than 1.08 times as long as its partner, three times of three.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from harness.table import lines

from everstep_agent.pair_test.work import child
from everstep_agent.pair_test.work.figure import Figure

_HEAD = ("what", "work", "unit", "median ms", "rate /s", "spread %", "rounds", "repeats")
_DEADLINE_S = 60.0
_HOLDER = """
import sys
from everstep_agent.pair_test.work.cuda_library import Cuda
cuda = Cuda()
with cuda.context(cuda.gpus()[0]):
    cuda.allocate(1 << 29)
    print("held", flush=True)
    sys.stdin.readline()
"""


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="processes, one after the other")
    parser.add_argument("--host", action="store_true", help="the host's own work as well")
    parser.add_argument("--held", action="store_true", help="a round beside a process on GPU 0")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    given = parser.parse_args()
    rounds = [_round(given.host) for _ in range(given.rounds)]
    told = Told(rounds, _held() if given.held else (), _used_mib())
    if given.json:
        print(json.dumps(asdict(told), indent=1))
    else:
        print("\n".join(_words(told)))
    return 0 if all(one.figures for one in rounds) else 1


@dataclass(frozen=True, slots=True)
class Round:
    """What one process measured, what it did not and why, and how long it took with its start."""

    figures: Sequence[Figure]
    untested: Sequence[str]
    models: Sequence[str]
    took_s: float
    failed: str


@dataclass(frozen=True, slots=True)
class Told:
    """Everything that was measured here."""

    rounds: Sequence[Round]
    held: Sequence[str]
    after: str


def _round(host: bool) -> Round:
    command = [sys.executable, "-P", child.__file__, json.dumps({"host": host})]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    took_s = time.perf_counter() - began
    told = json.loads(done.stdout) if done.returncode == 0 and done.stdout else {}
    untested = [f"{one['name']}: {one['why']}" for one in told.get("untested", ())]
    figures = [Figure(**one) for one in told.get("figures", ())]
    return Round(figures, untested, told.get("models", ()), took_s, done.stderr[-2000:])


def _held() -> Sequence[str]:
    """Return what a round says while another process has a context on the first GPU."""
    command = [sys.executable, "-c", _HOLDER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        told = _round(host=False)
        holder.communicate("\n")
    return told.untested


def _used_mib() -> str:
    """Return what nvidia-smi says is in use on each GPU afterwards."""
    command = ["nvidia-smi", "--query-gpu=index,memory.used,clocks.sm", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError as error:
        return str(error)


def _words(told: Told) -> Iterable[str]:
    by_name: dict[str, list[Figure]] = {}
    for figure in (figure for one in told.rounds for figure in one.figures):
        by_name.setdefault(figure.name, []).append(figure)
    yield from lines(_HEAD, [_row(name, figures) for name, figures in by_name.items()], _NUMERIC)
    seconds = [one.took_s for one in told.rounds]
    yield f"a round took {min(seconds):.2f} to {max(seconds):.2f} s, start of Python included"
    yield from dict.fromkeys(f"not tested: {why}" for one in told.rounds for why in one.untested)
    yield from (f"failed: {one.failed}" for one in told.rounds if one.failed)
    yield f"GPUs: {', '.join(told.rounds[0].models) or 'none'}"
    yield from (f"beside another process: {why}" for why in told.held)
    yield f"nvidia-smi afterwards (index, used, SM clock): {told.after}"


_NUMERIC = (1, 3, 4, 5, 6, 7)


def _row(name: str, figures: list[Figure]) -> list[str]:
    medians = [figure.median_s for figure in figures]
    usual = statistics.median(medians)
    spread = statistics.median(figure.spread for figure in figures)
    first = figures[0]
    return [
        name,
        f"{first.amount:.1f}",
        first.unit,
        f"{usual * 1e3:.3f}",
        f"{first.amount / usual:.1f}",
        f"{spread * 100:.1f}",
        f"{max(medians) / min(medians):.3f}",
        f"{len(figures)} x {len(first.seconds)}",
    ]


if __name__ == "__main__":
    sys.exit(main())
