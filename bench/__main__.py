"""Benchmarks, one command for all: ``python bench NAME [--help]``; without a name it lists them."""

import ast
import importlib
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parent
# By what they are called on the command line.
BENCHMARKS = {
    "agent": "agent.benchmark",
    "attack": "attack.benchmark",
    "cadence": "cadence.benchmark",
    "command-line": "scale.command_line",
    "cuts": "liveness.cuts",
    "failover": "failover.benchmark",
    "fleet": "fleet.benchmark",
    "hang-faults": "hangs.faults",
    "hang-recovery": "hangs.recovery",
    "hang-watching": "hangs.watching",
    "hangs": "hangs.localise",
    "install": "install.benchmark",
    "journal-commit": "journal.commit",
    "journal-database": "journal.database",
    "journal-day": "journal.day",
    "journal-flips": "journal.flips",
    "kubernetes": "fleet.kubernetes",
    "ledger": "journal.ledger",
    "liveness": "liveness.benchmark",
    "page": "page.benchmark",
    "pair-test": "slow.pair_test",
    "records": "transport.records",
    "recovery": "recovery.benchmark",
    "scale": "scale.benchmark",
    "slots": "vault.slots",
    "slow": "slow.benchmark",
    "transport": "transport.benchmark",
    "vault": "vault.benchmark",
}


def main(words: list[str]) -> int:
    """Run the benchmark that is named; return the exit status."""
    if not words or words[0] not in BENCHMARKS:
        asked = not words or words[0] in ("-h", "--help")
        if not asked:
            print(f"bench: there is no benchmark {words[0]!r}", file=sys.stderr)
        print("\n".join(_listed()), file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    name, *rest = words
    sys.path[:1] = [str(BENCH), str(BENCH.parent / "tests")]
    run = importlib.import_module("harness.session").run
    return int(run(importlib.import_module(BENCHMARKS[name]).BENCHMARK, name, rest))


def _listed() -> list[str]:
    """Return the lines that name each benchmark and what it is, without importing any."""
    found = ["usage: python bench NAME [--help]", ""]
    for name, module in BENCHMARKS.items():
        path = (BENCH / module.replace(".", "/")).with_suffix(".py")
        told = ast.get_docstring(ast.parse(path.read_text())) or ""
        found.append(f"  {name:16} {told.partition(chr(10))[0]}")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
