"""Liveness benchmark: fault, time to the verdict, and who was harmed without need.

Rows of processes are a controller and six agents in network namespaces of this machine, with a job
of three nodes whose ranks make ten steps a second; they need root and `ip`. Rows in virtual time
are the real core in the simulation, once for each seed. A target is the most that any round may
take.
"""

import argparse
import json
from collections.abc import Sequence

from harness.table import lines
from liveness import real_faults as liveness_processes
from liveness import virtual_faults as liveness_virtual
from liveness.rows import HEAD, NUMERIC, Row


def main(words: Sequence[str] | None = None) -> None:
    """Measure the rows and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    known = [*liveness_processes.CASES, *liveness_virtual.CASES]
    parser.add_argument("--rows", nargs="*", choices=known, default=known, metavar="ROW")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    options = parser.parse_args(words)
    if options.list:
        print("\n".join(known))
        return
    real = [name for name in options.rows if name in liveness_processes.CASES]
    virtual = [name for name in options.rows if name in liveness_virtual.CASES]
    with liveness_processes.begun(real) as real_rows:
        rows = [liveness_virtual.measured(liveness_virtual.CASES[name]) for name in virtual]
        show([*real_rows(), *rows], as_json=options.json)


def show(rows: Sequence[Row], *, as_json: bool) -> None:
    """Print the rows."""
    if as_json:
        print(json.dumps([one.as_json() for one in rows], indent=1))
        return
    for line in lines(HEAD, [one.cells() for one in rows], NUMERIC):
        print(line)


if __name__ == "__main__":
    main()
