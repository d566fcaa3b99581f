"""Scale benchmark: what the controller costs in fleets of three sizes, and how that grows.

Each row is measured in a process of its own at 1,000, 3,000 and 12,500 nodes (or what it says), in
processor time from the records as values to the actions that follow, with the journal's text of
both; connections, protobuf and the disk are left out. The exponent is that of the power of the
number of nodes that fits the sizes best: 1 is proportional. A row that takes longer than the limit
at some size has no value there, and is not met.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence

from harness.processes import module_command, with_paths
from harness.table import lines
from scale import rows as scale_rows

# So long may a row take in one size, what it is measured on included.
_LIMIT_S = 150.0


def measured(name: str, nodes: int, limit_s: float) -> float | None:
    """Return the value of a row at one size; None where it took longer than the limit."""
    command = module_command("scale.benchmark", "--row", name, "--nodes", nodes)
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


def result(name: str, limit_s: float) -> dict[str, object]:
    """Return a row at all its sizes."""
    one = scale_rows.ROWS[name]
    values = {size: measured(name, size, limit_s) for size in one.sizes}
    known = {size: value for size, value in values.items() if value is not None}
    targets = {**one.also, one.sizes[-1]: one.target}
    return {
        "name": name,
        "what": one.what,
        "unit": one.unit,
        "values": values,
        "exponent": exponent(known),
        "targets": targets,
        "met": all(known.get(size, math.inf) <= most for size, most in targets.items()),
    }


def cells(found: Mapping[str, object]) -> Sequence[str]:
    """Return a row of the table."""
    values, power, targets = found["values"], found["exponent"], found["targets"]
    assert isinstance(values, dict)
    assert isinstance(targets, dict)
    smaller = [f"≤ {most:g} at {size}" for size, most in [*targets.items()][:-1]]
    largest = f"≤ {[*targets.values()][-1]:g}"
    shown = [
        f"{size}: {f'{value:.3g}' if value is not None else 'too long'}"
        for size, value in values.items()
    ]
    return (
        str(found["what"]),
        *shown,
        *[""] * (3 - len(shown)),
        str(found["unit"]),
        f"{power:.2f}" if isinstance(power, float) else "",
        "; ".join([*smaller, largest]),
        "yes" if found["met"] else "no",
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    parser.add_argument("--only", choices=[*scale_rows.ROWS], action="append", help="a row")
    parser.add_argument("--limit-s", type=float, default=_LIMIT_S, help="for a row at one size")
    parser.add_argument("--row", choices=[*scale_rows.ROWS], help=argparse.SUPPRESS)
    parser.add_argument("--nodes", type=int, default=1000, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row:
        print(scale_rows.main(given.row, given.nodes))
        return
    found = [_measured(name, given.limit_s) for name in given.only or scale_rows.ROWS]
    if given.json:
        print(json.dumps(found, indent=1))
    else:
        _show(found)


def _measured(name: str, limit_s: float) -> Mapping[str, object]:
    print(f"{name} ...", file=sys.stderr, flush=True)
    return result(name, limit_s)


def _show(found: Sequence[Mapping[str, object]]) -> None:
    head = ("what", "nodes", "", "", "unit", "exponent", "target", "met")
    for line in lines(head, [cells(one) for one in found], (5,)):
        print(line)


if __name__ == "__main__":
    main()
