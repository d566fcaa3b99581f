"""Who keeps the replicas of whom, and who watches whom: rings over nodes and failure domains."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

# Of how many members a node keeps the replicas at most. An agent takes 64 connections at once
# (its vault/replication/server.py): those of four nodes with eight ranks and two streams each; and
# each of them waits longer for its turn on one link.
KEPT_MAX = 4


def replica_targets(
    members: Sequence[str], domain_of: Mapping[str, str], short: Collection[str] = ()
) -> dict[str, str]:
    """Return for every member another one, of another failure domain as far as there are any.

    Sorted by domain and shifted by the largest domain's size, no one stays in its own domain, and
    each keeps the replicas of exactly one. A domain with more than half of the members shares the
    others out: each of these keeps those of several, ``KEPT_MAX`` at most, and of one where memory
    is ``short``. Who is left over stays in that domain.
    """
    if len(members) < 2:
        return {}
    ring = sorted(members, key=lambda node: domain_of.get(node, ""))
    largest, size = Counter(domain_of.get(node, "") for node in ring).most_common(1)[0]
    if len(ring) // 2 < size < len(ring):
        first = next(at for at, node in enumerate(ring) if domain_of.get(node, "") == largest)
        ring = ring[first:] + ring[:first]
        return _shared_out(ring[:size], ring[size:], short)
    shift = size if size < len(ring) else 1
    return {node: ring[(index + shift) % len(ring)] for index, node in enumerate(ring)}


def _shared_out(
    inside: Sequence[str], outside: Sequence[str], short: Collection[str]
) -> dict[str, str]:
    """Return the targets where most members are ``inside`` one domain; each of them keeps one's."""
    shares = _shares(len(inside), [1 if node in short else KEPT_MAX for node in outside])
    leaving = sum(shares)
    staying = len(inside) - leaving
    targets = dict(zip(inside[leaving:], inside, strict=False))
    # In neighbours: when one comes or goes, only those at the ends of a share change their target.
    for keeper, share, end in zip(outside, shares, accumulate(shares), strict=True):
        targets.update(dict.fromkeys(inside[end - share : end], keeper))
        targets[keeper] = inside[staying + end - share]
    return targets


def _shares(count: int, limits: Sequence[int]) -> list[int]:
    """Share out as many of ``count`` as the limits allow, as evenly as they do."""
    shares = [0] * len(limits)
    for done, index in enumerate(sorted(range(len(limits)), key=limits.__getitem__)):
        shares[index] = min(limits[index], count // (len(limits) - done))
        count -= shares[index]
    return shares


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
