"""Cuts around the controller, in virtual time: what is lost, stopped and made again, by seed group.

Each seed is a fleet with some jobs and cuts of one kind: one cut, a cut that flaps, that heals
partly, two in a row, a restart of the controller meanwhile, a node that dies behind the cut, and
one that cuts the network of the ranks as well. With at most half of the fleet heard nothing is
lost or stopped; with more, whoever is cut off is lost as if it were off, and nobody else.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from harness.table import lines

from everstep_sim.cuts import KINDS, CutOutcome, play

_HEAD = (
    "heard",
    "kind of cut",
    "seeds",
    "heard of all",
    "lost",
    "lost wrongly",
    "jobs stopped",
    "steps thrown away",
    "not over",
    "people told",
)
_NUMERIC = range(2, len(_HEAD))


@dataclass(frozen=True, slots=True)
class Group:
    """What came of all seeds of one kind of cut, with few nodes heard or most of them."""

    few: bool
    kind: str
    outcomes: tuple[CutOutcome, ...]

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table."""
        heard = sum(one.heard for one in self.outcomes)
        nodes = sum(one.nodes for one in self.outcomes)
        return (
            "at most half" if self.few else "more than half",
            self.kind,
            str(len(self.outcomes)),
            f"{heard} of {nodes}",
            str(sum(len(one.lost) for one in self.outcomes)),
            str(sum(len(one.wrongly_lost) for one in self.outcomes)),
            str(sum(len(one.stopped) for one in self.outcomes)),
            str(sum(one.made_again for one in self.outcomes)),
            str(sum(bool(one.left) for one in self.outcomes)),
            str(sum(one.told for one in self.outcomes)),
        )


def main(words: Sequence[str] | None = None) -> None:
    """Play the seeds and print a row for each group."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print outcomes as JSON")
    parser.add_argument("--seeds", type=int, default=200, help="seeds of each half")
    options = parser.parse_args(words)
    groups = [_group(kind, options.seeds, few=few) for few in (True, False) for kind in KINDS]
    if options.json:
        told = [asdict(one) | {"few": group.few} for group in groups for one in group.outcomes]
        print(json.dumps(told, indent=1, default=sorted))
        return
    for line in lines(_HEAD, [group.cells() for group in groups], _NUMERIC):
        print(line)
    print()
    print("Price: more than half of a fleet without power is people's word (everstep nodes lost).")


def _group(kind: str, seeds: int, *, few: bool) -> Group:
    played = [seed for seed in range(seeds) if KINDS[seed % len(KINDS)] == kind]
    return Group(few, kind, tuple(play(seed, few=few) for seed in played))


if __name__ == "__main__":
    main()
