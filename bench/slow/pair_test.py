"""Pair test on the GPUs of this machine: what it measures, how far repeats and rounds lie apart.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.session import Benchmark, Part
from harness.table import Told

from everstep_agent.pair_test.work import child
from everstep_agent.pair_test.work.figure import Figure

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


@dataclass(frozen=True, slots=True)
class Round:
    """What one process measured, what it did not and why, and how long it took with its start."""

    figures: Sequence[Figure]
    untested: Sequence[str]
    models: Sequence[str]
    took_s: float
    failed: str


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


def measure(options: argparse.Namespace) -> Iterator[Told]:
    """Yield what each work took; tell the rest on standard error."""
    rounds = [_round(options.host) for _ in range(options.repeats)]
    by_name: dict[str, list[Figure]] = {}
    for figure in (figure for one in rounds for figure in one.figures):
        by_name.setdefault(figure.name, []).append(figure)
    for name, figures in by_name.items():
        yield _row(name, figures)
    seconds = [one.took_s for one in rounds]
    said = [f"a round took {min(seconds):.2f} to {max(seconds):.2f} s, start of Python included"]
    said += dict.fromkeys(f"not tested: {why}" for one in rounds for why in one.untested)
    said += [f"GPUs: {', '.join(rounds[0].models) or 'none'}"]
    said += [f"beside another process: {why}" for why in (_held() if options.held else ())]
    said += [f"nvidia-smi afterwards (index, used, SM clock): {_used_mib()}"]
    print("\n".join(said), file=sys.stderr)
    failed = [one.failed for one in rounds if not one.figures]
    if failed and not rounds[0].models:
        raise SystemExit(failed[0] or "no GPU is here; --host measures the host's own work")
    if failed:
        raise SystemExit(failed[0] or "a round measured nothing: others use the GPUs")


def _row(name: str, figures: list[Figure]) -> Told:
    medians = [figure.median_s for figure in figures]
    usual = statistics.median(medians)
    spread = statistics.median(figure.spread for figure in figures)
    first = figures[0]
    return Told(
        {
            "what": name,
            "work": f"{first.amount:.1f}",
            "unit": first.unit,
            "median ms": f"{usual * 1e3:.3f}",
            "rate /s": f"{first.amount / usual:.1f}",
            "spread %": f"{spread * 100:.1f}",
            "rounds": f"{max(medians) / min(medians):.3f}",
            "repeats": f"{len(figures)} x {len(first.seconds)}",
        }
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", action="store_true", help="the host's own work as well")
    parser.add_argument("--held", action="store_true", help="a round beside a process on GPU 0")


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[Part("pair test", 10.0, measure)],
    repeats=7,
    add_options=_add_options,
)
