"""Who keeps the replicas of whom, and who watches whom: rings over nodes and failure domains."""

from collections import Counter
from collections.abc import Mapping, Sequence


def replica_targets(members: Sequence[str], domain_of: Mapping[str, str]) -> dict[str, str]:
    """Return for every member another one, of another failure domain as far as there are any.

    Each is the target of exactly one. Sorted by domain and shifted by the largest domain's size, no
    one stays in its own domain unless that domain has more than half of the members.
    """
    if len(members) < 2:
        return {}
    ordered = sorted(members, key=lambda node: domain_of.get(node, ""))
    sizes = Counter(domain_of.get(node, "") for node in members)
    known = len(sizes) > 1
    shift = min(max(sizes.values()), len(members) - 1) if known else 1
    return {node: ordered[(index + shift) % len(ordered)] for index, node in enumerate(ordered)}


def watched_peers(
    nodes: Sequence[str], domain_of: Mapping[str, str], count: int = 3
) -> dict[str, tuple[str, ...]]:
    """Return for every node the next ones on a ring of all nodes that is sorted by domain.

    So most peers are neighbours, every node is watched, and the loss of a whole domain is seen from
    outside it.
    """
    ring = sorted(nodes, key=lambda node: (domain_of.get(node, ""), node))
    reach = range(1, min(count, len(ring) - 1) + 1)
    return {
        node: tuple(ring[(at + offset) % len(ring)] for offset in reach)
        for at, node in enumerate(ring)
    }
