"""Shares of equal state: which of the ranks that hold the same tensors saves which of them."""

import heapq
from collections.abc import Mapping, Sequence

# More shares make a step need more ranks' copies; sixteen make the copy short enough.
SHARES_MAX = 16


def shares_of(replicas: int) -> int:
    """Return into how many shares the state of so many equal ranks is cut."""
    return max(1, min(replicas, SHARES_MAX))


def assign(sizes: Sequence[int], shares: int) -> tuple[int, ...]:
    """Return the share of each tensor, of about equal bytes; every rank computes the same."""
    loads = [(0, share) for share in range(shares)]
    chosen = [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda index: (-sizes[index], index)):
        load, share = loads[0]
        chosen[index] = share
        heapq.heapreplace(loads, (load + sizes[index], share))
    return tuple(chosen)


def given_to_others(sizes: Mapping[str, int], index: int, replicas: int) -> frozenset[str]:
    """Return what of equal tensors, by their names, other ranks than the ``index``-th save."""
    names, shares = sorted(sizes), shares_of(replicas)
    chosen = assign([sizes[name] for name in names], shares)
    own = index % shares
    return frozenset(name for name, share in zip(names, chosen, strict=True) if share != own)
