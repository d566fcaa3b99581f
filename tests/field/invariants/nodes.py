"""Invariants of nodes: nobody is lost or isolated who is healthy and can be reached."""

from collections.abc import Collection, Iterator, Sequence

from field.invariants.violations import Violation, explained
from field.observation.records import Excuse, NodeSeen, Round


def no_healthy_node_is_lost(round_: Round) -> Sequence[Violation]:
    """A node is lost only where a fault took its machine or its network."""
    return [
        Violation(seen.at_s, seen.node, f"is lost: {seen.reason}")
        for seen, state in _entered(round_)
        if state == "lost" and not explained(round_, Excuse.LOST, seen.at_s, (seen.node,))
    ]


def no_healthy_node_is_isolated(round_: Round) -> Sequence[Violation]:
    """A node has a claim on it only where a fault or an operator gave a reason.

    A controller that only advises claims nobody for a finding, but those that are lost.
    """
    return [
        Violation(seen.at_s, seen.node, f"is claimed: {'; '.join(seen.claims)}")
        for seen, owner in _entered(round_)
        if owner != "lost" and not _has_reason(round_, seen, owner)
    ]


def _has_reason(round_: Round, seen: NodeSeen, owner: str) -> bool:
    excuses = [Excuse.HELD]
    if owner == "automation":
        excuses = [Excuse.LOST, *[Excuse.ISOLATED] * (round_.mode == "enforce")]
    return any(explained(round_, one, seen.at_s, (seen.node,)) for one in excuses)


def _entered(round_: Round) -> Iterator[tuple[NodeSeen, str]]:
    """Yield the first sight of each time that a node was lost, or claimed by an owner."""
    before: dict[str, Collection[str]] = {}
    for seen in sorted(round_.nodes, key=lambda one: one.at_s):
        owners = {one.partition(":")[0] for one in seen.claims}
        now = owners | ({"lost"} if seen.state == "lost" else set())
        for one in sorted(now.difference(before.get(seen.node, ()))):
            yield seen, one
        before[seen.node] = now
