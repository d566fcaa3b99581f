"""Vault benchmark: each figure beside its peer and the physical limit, in one run, as ratios.

Whatever a ratio compares ran in turn in this run; a ratio is the median of those of each round.
``--only`` takes the name of a part; all together take about ten minutes and 14 GiB of memory.
"""

import argparse
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator

from harness.figures import Figure, Series, show

PARTS = {
    "stall": "vault_stall",
    "overlap": "vault_overlap",
    "replication": "vault_replication",
    "tls": "vault_replication_tls",
    "hashing": "vault_hashing",
    "restore": "vault_restore",
    "persist": "vault_persist",
}


def measure(part: str, repeats: int) -> Iterator[Figure]:
    """Yield the figures of one part, after the load that the machine had before it."""
    yield Series(f"{part}: load average before", [os.getloadavg()[0]], "processes").figure()
    try:
        module = importlib.import_module(PARTS[part])
        yield from module.measure(repeats)
    except (SystemExit, subprocess.SubprocessError) as error:
        # What the others took ten minutes for is shown all the same.
        print(f"{part}: {error}", file=sys.stderr)
        yield Figure(name=f"{part}: FAILED, not measured", value=0.0, unit="", met=False)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    parser.add_argument("--repeats", type=int, default=7, help="rounds to take the median of")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part, again for more")
    given = parser.parse_args()
    figures: list[Figure] = []
    for part in given.only or PARTS:
        print(f"{part} ...", file=sys.stderr, flush=True)
        figures += measure(part, given.repeats)
    show(figures, given.json)


if __name__ == "__main__":
    main()
