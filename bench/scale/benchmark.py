"""Scale benchmark: what the controller costs in fleets of three sizes, and how that grows.

Each row is measured in a process of its own at 1,000, 3,000 and 12,500 nodes (or what it says), in
processor time from the records as values to the actions that follow, with the journal's text of
both; connections, protobuf and the disk are left out. The exponent is that of the power of the
number of nodes that fits the sizes best: 1 is proportional. A row that takes longer than the limit
at some size has no value there, and is not met.
"""

import argparse
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial

from harness.processes import module_command, with_paths
from harness.session import Benchmark, Part
from harness.table import Told
from scale.rows import ROWS

from everstep_controller.main import collect_garbage_seldom

# So long may a row take in one size, what it is measured on included.
_LIMIT_S = 150.0


def measured(name: str, nodes: int, limit_s: float) -> float | None:
    """Return the value of a row at one size; None where it took longer than the limit."""
    command = module_command("scale.benchmark", name, nodes)
    try:
        done = subprocess.run(
            command, env=with_paths(), check=True, stdout=subprocess.PIPE, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return None
    return float(done.stdout)


def exponent(values: Mapping[int, float]) -> float | None:
    """Return the power of the size that fits best; None for fewer than two sizes."""
    points = [(math.log(size), math.log(value)) for size, value in values.items() if value > 0]
    if len(points) < 2:
        return None
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    over = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return over / sum((x - mean_x) ** 2 for x, _ in points)


def measure(name: str, options: argparse.Namespace) -> Iterator[Told]:
    """Yield a row at all its sizes."""
    one = ROWS[name]
    values = {size: measured(name, size, options.limit) for size in options.nodes or one.sizes}
    known = {size: value for size, value in values.items() if value is not None}
    power = exponent(known)
    targets = {**one.also, one.sizes[-1]: one.target}
    met = all(known.get(size, math.inf) <= most for size, most in targets.items())
    told = [f"{size}: {_told(value)}" for size, value in values.items()]
    places = ("smallest", "middle", "largest")
    yield Told(
        {
            "what": one.what,
            **dict(zip(places, [*told, "", "", ""], strict=False)),
            "unit": one.unit,
            "exponent": "" if power is None else f"{power:.2f}",
            "target": "; ".join(f"≤ {most:g} at {size}" for size, most in targets.items()),
            "met": "" if options.nodes else "yes" if met else "no",
        }
    )


def _told(value: float | None) -> str:
    return "too long" if value is None else f"{value:.3g}"


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=float, default=_LIMIT_S, help="s of a row at one size")
    parser.add_argument("--nodes", type=int, nargs="+", help="other sizes")


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[Part(name, 25.0, partial(measure, name)) for name in ROWS],
    add_options=_add_options,
    quick={"nodes": [100, 200]},
)

if __name__ == "__main__":
    collect_garbage_seldom()  # as the daemon does
    print(ROWS[sys.argv[1]].measure(int(sys.argv[2])))
