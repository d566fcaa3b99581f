"""Roster of a fleet: all nodes by failure domain, and the HTML of those that are well. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby

from everstep_cli.page.tiles import STATES, Tile, html_of
from everstep_proto.generated import admin_pb2

_UNNAMED = "no domain"
_NUMBER = re.compile(r"([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Section:
    """Nodes of one failure domain as the page has them."""

    name: str
    nodes: int
    # "2 lost, 1 suspect"; "" where all are well.
    trouble: str
    # Entries of a list, as HTML.
    tiles: str


@dataclass(frozen=True, slots=True)
class Roster:
    """All nodes of a fleet; read now and then, for seldom does one come or go."""

    # Failure domain → its nodes, in order.
    domains: Mapping[str, Sequence[str]]
    # Node → its tile while it is well.
    well: Mapping[str, str]
    # Another one where other nodes are in it, or in other domains.
    mark: str

    def has(self, nodes: Iterable[str], count: int) -> bool:
        """Return whether these are in it, and so many are in all."""
        return len(self.well) == count and all(name in self.well for name in nodes)

    def sections(self, troubled: Mapping[str, Tile]) -> list[Section]:
        """Return the nodes by domain, with those drawn as they are that are not well."""
        drawn = {name: html_of(tile) for name, tile in troubled.items()}
        return [
            Section(
                domain or _UNNAMED,
                len(nodes),
                trouble_of(troubled[name] for name in nodes if name in troubled),
                "".join(drawn.get(name) or self.well[name] for name in nodes),
            )
            for domain, nodes in self.domains.items()
        ]

    def counts(self, troubled: Mapping[str, Tile]) -> dict[str, int]:
        """Return how many nodes look how, the worst first; all looks are in it."""
        found = Counter(tile.state for name, tile in troubled.items() if name in self.well)
        found["healthy"] = len(self.well) - found.total()
        return {state: found[state] for state in (*STATES, *(found.keys() - STATES))}


def roster_of(nodes: Iterable[admin_pb2.NodeSummary]) -> Roster:
    """Return the roster of nodes, both domains and nodes in the order of their names."""
    ordered = sorted(
        nodes, key=lambda node: (not node.domain, _natural(node.domain), _natural(node.node))
    )
    domains = {
        domain: [node.node for node in group]
        for domain, group in groupby(ordered, key=lambda node: node.domain)
    }
    well = {node.node: html_of(Tile(node.node, "healthy", "")) for node in ordered}
    mark = blake2b(repr(domains).encode("utf-8", "replace"), digest_size=8).hexdigest()
    return Roster(domains, well, mark)


def _natural(name: str) -> list[str | int]:
    """Return what sorts rack-2 before rack-10: words and numbers by turns."""
    return [int(part) if place % 2 else part for place, part in enumerate(_NUMBER.split(name))]


def trouble_of(tiles: Iterable[Tile]) -> str:
    """Return how many tiles are in which state, the worst first."""
    found = Counter(tile.state for tile in tiles)
    return ", ".join(f"{found[state]} {state}" for state in (*STATES, "") if found[state])
