"""Vault reports for benchmarks: those of agents of 8 ranks a node while a step is committed."""

from collections.abc import Sequence

from everstep_proto.generated import fleet_pb2

JOB = "train"
RANKS = 8
STEPS = 3
# Copies that are told in one report: all of a node's, four (the real case), and one.
TOGETHER = (2 * RANKS, 4, 1)
# The steps that are held of each rank of a node.
Steps = Sequence[Sequence[int]]


def report(nodes: int, index: int, own: Steps, kept: Steps) -> fleet_pb2.VaultReport:
    """Return a node's report: the steps of each of its ranks, and of each of its neighbour's."""
    wire = fleet_pb2.VaultReport(job=JOB)
    for home, held in ((index, own), ((index - 1) % nodes, kept)):
        for number, steps in enumerate(held):
            rank = home * RANKS + number
            for step in steps:
                tag = (rank * 1_000_003 + step).to_bytes(8, "big")
                wire.copies.add(
                    generation=1,
                    rank=rank,
                    step=step,
                    replica=home != index,
                    root_hash=tag * 2,
                    size_bytes=40 << 30,
                    layout=rank.to_bytes(16, "big"),
                )
    return wire


def moments(step: int, together: int) -> list[tuple[Steps, Steps]]:
    """Return what a node holds of its own and its neighbour's ranks in the course of a commit.

    So many copies are verified together; the oldest step was freed before.
    """
    old, new = [*range(step - STEPS + 1, step)], [*range(step - STEPS + 1, step + 1)]
    own, kept = [old] * RANKS, [old] * RANKS
    found: list[tuple[Steps, Steps]] = []
    for side in (own, kept):
        for first in range(0, RANKS, together):
            side[first : first + together] = [new] * len(side[first : first + together])
            found.append((list(own), list(kept)))
    return found if together <= RANKS else [(own, kept)]
