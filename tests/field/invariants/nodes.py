"""Invariants of nodes: nobody is lost or isolated who is healthy and can be reached."""

from collections.abc import Callable, Iterator, Sequence

from field.invariants.violations import Violation, explained
from field.observation.records import Excuse, NodeSeen, Round


def no_healthy_node_is_lost(round_: Round) -> Sequence[Violation]:
    """A node is lost only where a fault took its machine or its network."""
    return [
        Violation(seen.at_s, seen.node, f"is lost: {seen.reason}")
        for seen in _entered(round_, lambda one: one.state == "lost")
        if not explained(round_, Excuse.LOST, seen.at_s, (seen.node,))
    ]


def no_healthy_node_is_isolated(round_: Round) -> Sequence[Violation]:
    """A node has a claim on it only where a fault or an operator gave a reason."""
    return [
        Violation(seen.at_s, seen.node, f"is claimed: {'; '.join(seen.claims)}")
        for seen in _entered(round_, lambda one: bool(one.claims))
        if not _has_reason(round_, seen)
    ]


def _has_reason(round_: Round, seen: NodeSeen) -> bool:
    excuses = (Excuse.ISOLATED, Excuse.LOST)
    return any(explained(round_, one, seen.at_s, (seen.node,)) for one in excuses)


def _entered(round_: Round, is_bad: Callable[[NodeSeen], bool]) -> Iterator[NodeSeen]:
    """Yield the first sight of each time that a node was so."""
    bad: set[str] = set()
    for seen in sorted(round_.nodes, key=lambda one: one.at_s):
        if not is_bad(seen):
            bad.discard(seen.node)
        elif seen.node not in bad:
            bad.add(seen.node)
            yield seen
