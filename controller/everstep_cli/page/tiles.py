"""Tiles of a fleet: one for each node, told apart by letter, shape and colour. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from everstep_proto.generated import admin_pb2

# State → letter and shape; the colours are the style sheet's. Claims and doubt come before a state.
_LOOKS = {
    "healthy": ("", "square"),
    "joining": ("J", "round"),
    "validating": ("V", "round"),
    "probation": ("P", "round"),
    "suspect": ("S", "diamond"),
    "doubtful": ("D", "diamond"),
    "claimed": ("C", "diamond"),
    "repairing": ("R", "triangle"),
    "lost": ("L", "triangle"),
    "maintenance": ("M", "round"),
    "retired": ("X", "round"),
}
STATES = tuple(_LOOKS)
_UNNAMED = "no domain"


@dataclass(frozen=True, slots=True)
class Tile:
    """What is seen of a node from afar."""

    node: str
    state: str
    # What stands behind it, in a sentence.
    told: str

    @property
    def letter(self) -> str:
        """Return its letter; "" for a node that is well."""
        return _LOOKS.get(self.state, ("?", ""))[0]

    @property
    def shape(self) -> str:
        """Return its shape."""
        return _LOOKS.get(self.state, ("", "round"))[1]


def tile_of(node: admin_pb2.NodeSummary) -> Tile:
    """Return the tile of a node: what is worst about it."""
    state = node.state
    if state in ("healthy", "probation") and node.claims:
        state = "claimed"
    if state == "healthy" and node.doubt:
        state = "doubtful"
    owners = ", ".join(claim.owner for claim in node.claims)
    parts = [node.state, f"claimed by {owners}" if owners else "", node.doubt, node.reason]
    return Tile(node.node, state, "; ".join(part for part in parts if part))


def by_domain(nodes: Iterable[admin_pb2.NodeSummary]) -> list[tuple[str, list[Tile]]]:
    """Return the tiles of each failure domain, both in the order of their names."""
    ordered = sorted(nodes, key=lambda node: (not node.domain, node.domain, node.node))
    return [
        (domain or _UNNAMED, [tile_of(node) for node in group])
        for domain, group in groupby(ordered, key=lambda node: node.domain)
    ]


def troubled(nodes: Iterable[admin_pb2.NodeSummary]) -> list[Sequence[str]]:
    """Return node, state, letter, shape and sentence of each node that is not simply well."""
    tiles = (tile_of(node) for node in nodes)
    return [
        (tile.node, tile.state, tile.letter, tile.shape, tile.told)
        for tile in tiles
        if tile.state != "healthy"
    ]
