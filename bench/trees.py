"""Tree benchmark: fifteen figures of two source trees, each measured in turn, and their ratios.

For an engineer who has changed much and wants to know what it costs: the other tree is a worktree
with an environment of its own (``git worktree add ../other COMMIT``, then ``make install`` there).
Every probe runs in both, one right after the other, in as many pairs as are asked for; the order
changes from pair to pair. All figures are costs: a ratio above 1 is worse than the other tree. Of
five pairs the lowest and the highest ratio hold the true median in 94 % of the cases; an interval
that leaves out 1 is marked. All probes take about eight minutes a pair.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from table import lines

HERE = Path(__file__).parent.parent
_TIMEOUT_S = 600.0
# A median above it with an interval that leaves out 1 is to be mended, or explained.
_WORSE = 1.10


class ProbeFailedError(Exception):
    """A probe did not print its figures."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One run in a tree: its program, and which of what it prints are figures.

    ``figures`` maps the beginning of a printed name to the figure's own.
    ``program`` is a benchmark with its arguments, or ``-c`` and a text that imports them; both
    print JSON rows with name, value and unit.
    """

    name: str
    program: tuple[str, ...]
    figures: Mapping[str, str]
    # A rate instead of a cost: its inverse is compared.
    rate: bool = False


# The parts of the vault's benchmark, without the peers' environment, which both trees would share.
_STALL = """
import sys; sys.path.insert(0, "bench")
import dataclasses, json, vault_peers, vault_stall
vault_peers.python = lambda: sys.executable
one = vault_stall.rounds(
    vault_stall.Setting(2, "one thread", ("memcpy1",), ("memcpy1", "everstep")), 2)
print(json.dumps([dataclasses.asdict(one["tuned everstep"].figure())]))
"""
_RESTORE = """
import sys; sys.path.insert(0, "bench")
import dataclasses, json, vault_restore as bench
figures = [dataclasses.asdict(figure) for figure in bench.own(2)]
with bench.bench_node("node-1", 2) as holder:
    source = bench.save(holder, bench.GIB)
    holder.talk.ask("start", 2, source)
    with bench.bench_node("node-2", 2, spare=True) as node:
        node.talk.ask("wait_as_spare", bench.GIB)
        took_s = bench.fetched(node, source)[1]
figures.append({"name": "peer", "value": took_s, "unit": "s"})
print(json.dumps(figures))
"""
_AGENT = """
import sys; sys.path.insert(0, "bench")
import dataclasses, json, agent_sources
print(json.dumps([dataclasses.asdict(row) for row in agent_sources.measure(1)]))
"""
_DEMO = """
import json, pathlib, subprocess, sys
everstep = pathlib.Path(sys.executable).with_name("everstep")
done = subprocess.run([everstep, "demo", "--json"], stdout=subprocess.PIPE, check=True)
told = json.loads(done.stdout)["ledger"]
rows = [{"name": one["cause"], "value": (one["over_ns"] - one["onset_ns"]) / 1e9, "unit": "s"}
        for one in told["incidents"]]
print(json.dumps(rows))
"""

PROBES = (
    Probe(
        "events",
        ("bench/plan_scale.py", "--json", "--repeats", "3"),
        {
            "JobProgressed of 1000 members": "event: progress of a job of 1,000 nodes",
            "RankExited: stop the generation": "event: a rank's exit stops 1,000 nodes",
            "all of them together": "events: 1,000 nodes stop, and the next plan",
            "decode and fold": "events: a recovery of 1,000 nodes, read back",
            "from the judged fault to the last message": "plan: 16,384 ranks, fault to messages",
        },
    ),
    Probe(
        "planned",
        ("bench/planned_scale.py", "--json", "--repeats", "3"),
        {"FindingRaised": "event: a finding, in 12,500 nodes with 1,000 jobs"},
    ),
    Probe(
        "catalogue",
        ("bench/vault_catalogue.py", "--json", "--repeats", "2"),
        {
            "4 x 2048 reports of one commit of 16384 ranks": "catalogue: a commit of 16,384 ranks",
        },
    ),
    Probe(
        "journal",
        ("bench/journal_commit.py", "--json", "--repeats", "3", "--in-flight", "100"),
        {"journal, 100 on their way": "journal: an event made durable"},
        rate=True,
    ),
    Probe(
        "fanin",
        ("bench/controller_fanin.py", "--json", "--repeats=2", "--seconds=4", "--agents=100"),
        {"controller, 100 agents: CPU per message": "controller: a message of samples"},
    ),
    Probe("agent", ("-c", _AGENT), {"all looks in their rhythm": "agent: all its looks"}),
    Probe("stall", ("-c", _STALL), {"snapshot(), 2 GiB, one thread": "snapshot: stall of 2 GiB"}),
    Probe(
        "restore",
        ("-c", _RESTORE),
        {
            "restore from own memory, two threads": "restore: 2 GiB from own memory",
            "peer": "restore: 1 GiB from a peer",
        },
    ),
    Probe(
        "demo",
        ("-c", _DEMO),
        {
            "process": "recovery: a rank is killed",
            "node": "recovery: a node is killed",
        },
    ),
)


def measure(tree: Path, probe: Probe) -> dict[str, tuple[float, str]]:
    """Return a probe's figures in a tree: label → cost and unit. Raises ProbeFailedError."""
    command = [str(tree / ".venv/bin/python"), *probe.program]
    try:
        done = subprocess.run(
            command, cwd=tree, check=True, capture_output=True, timeout=_TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        tail = error.stderr.decode(errors="replace")[-800:]
        raise ProbeFailedError(f"{probe.name} failed in {tree}:\n{tail}") from error
    except subprocess.TimeoutExpired as error:
        raise ProbeFailedError(f"{probe.name} in {tree} took over {_TIMEOUT_S:g} s") from error
    rows = json.loads(done.stdout)
    found = {}
    for name, label in probe.figures.items():
        row = next((row for row in rows if row["name"].startswith(name)), None)
        if row is None:
            raise ProbeFailedError(f"{probe.name} in {tree} printed no {name}")
        found[label] = (1e6 / row["value"], "µs") if probe.rate else (row["value"], row["unit"])
    return found


@dataclass(frozen=True, slots=True)
class Pair:
    """One figure in both trees, measured one right after the other."""

    other: float
    ours: float
    unit: str


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure in both trees, in all pairs."""

    name: str
    pairs: Sequence[Pair]

    @property
    def ratios(self) -> list[float]:
        """Return ours / other of each pair."""
        return [pair.ours / pair.other for pair in self.pairs]

    @property
    def worse(self) -> bool:
        """Return whether it is more than a tenth worse, and no pair says otherwise."""
        return statistics.median(self.ratios) > _WORSE and min(self.ratios) > 1

    def row(self) -> dict[str, object]:
        """Return it for --json."""
        return {
            "name": self.name,
            "unit": self.pairs[0].unit,
            "other": statistics.median(pair.other for pair in self.pairs),
            "this": statistics.median(pair.ours for pair in self.pairs),
            "ratio": statistics.median(self.ratios),
            "ratio_low": min(self.ratios),
            "ratio_high": max(self.ratios),
            "pairs": len(self.ratios),
            "worse": self.worse,
        }

    def cells(self) -> tuple[str, ...]:
        """Return it for the table."""
        row = self.row()
        return (
            self.name,
            f"{row['other']:.3g}",
            f"{row['this']:.3g}",
            self.pairs[0].unit,
            f"{row['ratio']:.2f}",
            f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}",
            "WORSE" if self.worse else "",
        )


def compare(other: Path, probes: Sequence[Probe], pairs: int) -> Iterator[Compared]:
    """Measure the probes in turn, and yield their figures when all pairs are done."""
    found: dict[str, list[Pair]] = defaultdict(list)
    for number in range(pairs):
        for probe in probes:
            print(f"pair {number + 1} of {pairs}: {probe.name}", file=sys.stderr, flush=True)
            try:
                for label, pair in measure_pair(other, probe, ours_first=number % 2 == 1).items():
                    found[label].append(pair)
            except ProbeFailedError as error:
                # What the others took an hour for is shown all the same.
                print(error, file=sys.stderr, flush=True)
    for label, measured in found.items():
        yield Compared(label, measured)


def measure_pair(other: Path, probe: Probe, *, ours_first: bool) -> dict[str, Pair]:
    """Return a probe's figures in both trees. Raises ProbeFailedError."""
    if ours_first:
        ours, theirs = measure(HERE, probe), measure(other, probe)
    else:
        theirs, ours = measure(other, probe), measure(HERE, probe)
    return {label: Pair(theirs[label][0], value, unit) for label, (value, unit) in ours.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="the tree to compare with, with its own .venv")
    parser.add_argument("--pairs", type=int, default=5, help="of runs, for the interval")
    names = [probe.name for probe in PROBES]
    parser.add_argument("--only", choices=names, action="append", help="a probe, again for more")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    given = parser.parse_args()
    if not (given.other / ".venv/bin/python").exists():
        parser.error(f"{given.other} has no .venv: run `make install` there first")
    probes = [probe for probe in PROBES if probe.name in (given.only or names)]
    figures = list(compare(given.other.resolve(), probes, given.pairs))
    if given.json:
        print(json.dumps([figure.row() for figure in figures], indent=1))
        return
    head = ("figure", "other", "this", "unit", "ratio", "lowest to highest", "")
    for line in lines(head, [figure.cells() for figure in figures], (1, 2, 4)):
        print(line)


if __name__ == "__main__":
    main()
