"""Restores in the agents' logs: the rank, the step, and the nodes that its bytes came from."""

import re
from collections.abc import Iterator

from everstep_cli.demo.proofs import DemoRestore

_RESTORED = re.compile(
    r"job \S+: generation (?P<generation>\d+): rank (?P<rank>\d+) restored step (?P<step>\d+) "
    r"from (?P<sources>.+)"
)
_PREFETCHED = re.compile(
    r"job \S+: prefetched step (?P<step>\d+) of rank (?P<rank>\d+) "
    r"from peer memory of (?P<node>\S+)"
)
_PEER = "peer memory of "


def restores_in(node: str, log: str) -> Iterator[DemoRestore]:
    """Yield what the log of a node's agent tells, oldest first."""
    fetched = {(m["rank"], m["step"]): m["node"] for m in _PREFETCHED.finditer(log)}
    for match in _RESTORED.finditer(log):
        # What was fetched ahead is in the node's own memory by the time a rank asks.
        own = fetched.get((match["rank"], match["step"]), node)
        yield DemoRestore(
            node=node,
            generation=int(match["generation"]),
            rank=int(match["rank"]),
            step=int(match["step"]),
            sources=tuple(sorted({_holder(one, own) for one in match["sources"].split(", ")})),
        )


def _holder(source: str, own: str) -> str:
    """Return the node that a source names; ``own`` for the memory of this one."""
    told = source.strip()
    return own if told == "own memory" else told.removeprefix(_PEER)
