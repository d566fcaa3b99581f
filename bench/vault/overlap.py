"""Vault part: what snapshots add to steps that compute on one core: 512 MiB in a second of step.

Steps with a snapshot and without take turns in one process; the agent hashes what it is given on
the other core meanwhile, and sends it nowhere.
"""

from collections.abc import Iterator

from harness import peers
from harness.table import Row, Series, Target
from vault.nodes import bench_node, bench_rank

_BYTES = 512 * 1024 * 1024
_STEP_S = 1.0
# Each slot's first snapshot is not counted; as many slots as a rank may have with storage.
_WARM = 5


def pairs(manner: str, repeats: int) -> tuple[Series, Series]:
    """Return the seconds of steps without a snapshot and with one."""
    with bench_node("node-1") as node:
        arguments = (_BYTES, _STEP_S, manner)
        environment = node.environment(1)
        python = peers.python()
        with bench_rank("vault.overlap_rank", environment, *arguments, python=python) as rank:
            found = []
            for step in range(1, repeats + _WARM + 1):
                found.append(rank.ask("round"))
                node.talk.ask("verified", step)
                node.talk.ask("recoverable", step)
    kept = [pair for pair in found[_WARM:] if isinstance(pair, list)]
    return (
        Series(f"step of 1 s beside them, {manner}", [pair[0] for pair in kept]),
        Series(f"step with snapshot of 512 MiB, {manner}", [pair[1] for pair in kept]),
    )


def measure(repeats: int) -> Iterator[Row]:
    """Measure and yield the figures."""
    for manner, target in (("plain", None), ("overlapped", Target(1.03))):
        without, with_snapshot = pairs(manner, 3 * repeats)
        yield without.figure()
        yield with_snapshot.against(without, target)
