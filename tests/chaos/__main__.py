"""Chaos: three controllers with one journal, faults at random, and what must hold whatever happens.

In the manner of Jepsen: agents, controllers and database leave evidence while they are killed,
stopped, cut off and lied to by their clocks, and what was recorded is judged afterwards. It runs in
namespaces of its own, which end with it; it needs root, `ip`, gcc and PostgreSQL. `make chaos`.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from chaos.report import RunReport
from fakes.postgres_server import binaries
from real.sandbox import denies_interfaces

_NAMESPACES = ["unshare", "--net", "--pid", "--fork", "--kill-child=TERM", "--mount-proc"]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser("make chaos", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="of faults (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn by chance")
    parser.add_argument("--report", type=Path, help="a file for the report, as JSON")
    parser.add_argument("--folder", type=Path, help="where the evidence is kept")
    return parser.parse_args(arguments)


def missing() -> str:
    """Return why it cannot run here; "" when it can."""
    if reason := denies_interfaces():
        return reason
    lacks = [name for name in ("ip", "gcc", "nsenter") if shutil.which(name) is None]
    if binaries() is None:
        lacks.append("PostgreSQL")
    return f"not installed: {', '.join(lacks)}" if lacks else ""


def main(arguments: Sequence[str]) -> int:
    """Play a run, and print what came of it; 1 where something does not hold."""
    options = parse(arguments)
    if reason := missing():
        print(f"chaos: {reason}", file=sys.stderr)
        return 2
    folder = options.folder or Path(tempfile.mkdtemp(prefix="everstep-chaos-"))
    folder.mkdir(exist_ok=True)
    words = [str(folder), str(options.minutes), str(options.seed)]
    code = subprocess.call([*_NAMESPACES, sys.executable, "-P", "-m", "chaos.inside", *words])
    if code:
        print(f"chaos: ended early with {code}; its evidence is in {folder}", file=sys.stderr)
        return 2
    made = RunReport.read(folder / "report.json")
    print("\n".join(made.lines()))
    if options.report:
        made.write(options.report)
    if made.is_clean and not options.folder:
        shutil.rmtree(folder)
    elif not made.is_clean:
        print(f"the evidence is in {folder}; --seed {options.seed} plays the same faults again")
    return 0 if made.is_clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
