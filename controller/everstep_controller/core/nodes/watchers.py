"""Watchers: which nodes probe a node, some of its own domain and some of the one before that."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.state import State

# So many others watch every node, where there are so many.
_WATCHERS = 3


def watched_peers(nodes: Sequence[str], domain_of: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return for every node whom it watches: its neighbours, and some of the next domain.

    Every node is watched by as many others, of its own domain and of the one before that; of the
    latter by more where its own has too few.
    """
    by_domain: dict[str, list[str]] = {}
    for node in sorted(nodes):
        by_domain.setdefault(domain_of.get(node, ""), []).append(node)
    domains = [by_domain[name] for name in sorted(by_domain)]
    watched: dict[str, list[str]] = {node: [] for node in nodes}
    for index, names in enumerate(domains):
        near = [domains[index - distance] for distance in range(min(_REACH, len(domains)))]
        for at, node in enumerate(names):
            for watcher in _watchers(near, at, len(domains)):
                watched[watcher].append(node)
    return {node: tuple(peers) for node, peers in watched.items()}


def watchers_of(state: State, node: NodeRecord) -> list[str]:
    """Return who probes a node, as the fleet is now."""
    known = state.index.present.keys
    names = state.index.present.of(node.spec.domain)
    at = bisect_left(names, node.name)
    if at == len(names) or names[at] != node.name:
        return []
    index = bisect_left(known, node.spec.domain)
    near = [
        state.index.present.of(known[index - distance])
        for distance in range(min(_REACH, len(known)))
    ]
    return list(_watchers(near, at, len(known)))


# Of so many domains, its own and those before it, the watchers of a node come.
_REACH = _WATCHERS + 1


def _watchers(near: Sequence[Sequence[str]], at: int, domains: int) -> Iterator[str]:
    """Yield who watches the node at a place of the first domain; the others are before that one."""
    names = near[0]
    # Where there is another domain, one of its nodes watches as well.
    own = min(len(names) - 1, _WATCHERS - (domains > 1))
    for offset in range(1, own + 1):
        yield names[at - offset]
    for distance in range(1, min(domains, _WATCHERS - own + 1)):
        other = near[distance]
        yield other[at % len(other)]
