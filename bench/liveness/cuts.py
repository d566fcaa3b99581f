"""Cuts around the controller, in virtual time: what is lost, stopped and made again, by seed group.

Each seed is a fleet with some jobs and cuts of one kind: one cut, a cut that flaps, that heals
partly, two in a row, a restart of the controller meanwhile, a node that dies behind the cut, and
one that cuts the network of the ranks as well. With at most half of the fleet heard nothing is
lost or stopped; with more, whoever is cut off is lost as if it were off, and nobody else.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.session import Benchmark, Part

from everstep_sim.cuts import KINDS, CutOutcome, play


@dataclass(frozen=True, slots=True)
class Group:
    """What came of all seeds of one kind of cut, with few nodes heard or most of them."""

    few: bool
    kind: str
    outcomes: tuple[CutOutcome, ...]

    @property
    def head(self) -> Sequence[str]:
        """See Line."""
        return tuple(self.as_json())

    def cells(self) -> Sequence[str]:
        """See Line."""
        return tuple(map(str, self.as_json().values()))

    def as_json(self) -> Mapping[str, object]:
        """See Line."""
        heard = sum(one.heard for one in self.outcomes)
        nodes = sum(one.nodes for one in self.outcomes)
        return {
            "cut": f"{self.kind}, {'at most half' if self.few else 'more than half'} heard",
            "seeds": len(self.outcomes),
            "heard of all": f"{heard} of {nodes}",
            "lost": sum(len(one.lost) for one in self.outcomes),
            "lost wrongly": sum(len(one.wrongly_lost) for one in self.outcomes),
            "jobs stopped": sum(len(one.stopped) for one in self.outcomes),
            "steps thrown away": sum(one.made_again for one in self.outcomes),
            "not over": sum(bool(one.left) for one in self.outcomes),
            "people told": sum(one.told for one in self.outcomes),
        }


def groups(options: argparse.Namespace) -> Iterator[Group]:
    """Play the seeds and yield each group."""
    for few in (True, False):
        for kind in KINDS:
            yield _group(kind, options.seeds, few=few)
    price = "more than half of a fleet without power is people's word (everstep nodes lost)"
    print(f"Price: {price}.", file=sys.stderr)


def _group(kind: str, seeds: int, *, few: bool) -> Group:
    played = [seed for seed in range(seeds) if KINDS[seed % len(KINDS)] == kind]
    return Group(few, kind, tuple(play(seed, few=few) for seed in played))


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[Part("cuts", 200.0, groups)],
    add_options=lambda parser: parser.add_argument(
        "--seeds", type=int, default=200, help="seeds of each half"
    ),
    quick={"seeds": 7},
)
