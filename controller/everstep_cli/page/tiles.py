"""Tiles of a fleet: one for each node, told apart by letter, shape and colour. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from everstep_cli.report.svg import words
from everstep_proto.generated import admin_pb2

# State → letter and shape; the colours are the style sheet's. Claims and doubt come before a state.
_LOOKS = {
    "lost": ("L", "triangle"),
    "repairing": ("R", "triangle"),
    "claimed": ("C", "diamond"),
    "suspect": ("S", "diamond"),
    "doubtful": ("D", "diamond"),
    "away": ("A", "triangle"),
    "probation": ("P", "round"),
    "validating": ("V", "round"),
    "joining": ("J", "round"),
    "maintenance": ("M", "round"),
    "retired": ("X", "round"),
    "healthy": ("", "square"),
}
STATES = tuple(_LOOKS)


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
        return letter_of(self.state)

    @property
    def shape(self) -> str:
        """Return its shape."""
        return shape_of(self.state)


def letter_of(state: str) -> str:
    """Return the letter of a state; "?" for one of a newer controller."""
    return _LOOKS.get(state, ("?", ""))[0]


def shape_of(state: str) -> str:
    """Return the shape of a state."""
    return _LOOKS.get(state, ("", "round"))[1]


def tile_of(node: admin_pb2.NodeSummary) -> Tile:
    """Return the tile of a node: what is worst about it."""
    state = node.state
    if state in ("healthy", "probation") and node.claims:
        state = "claimed"
    if state == "healthy" and node.doubt:
        state = "doubtful"
    if state == "healthy" and not node.connected:
        state = "away"
    owners = ", ".join(claim.owner for claim in node.claims)
    away = "" if node.connected or node.state == "lost" else "its agent is away"
    whys = (*(claim.reason for claim in node.claims), node.doubt, away, node.reason)
    why = "; ".join(dict.fromkeys(filter(None, whys)))
    return Tile(node.node, state, f"claimed by {owners}: {why}" if owners else why)


def html_of(tile: Tile) -> str:
    """Return a tile as a list's entry; that of a node that is well is as short as it can be."""
    place = f'href="/node/{quote(tile.node)}"'
    node, state = words(tile.node), words(tile.state)
    if tile.state == "healthy":
        return f'<li><a class="tile" {place} title="{node}: healthy"></a></li>'
    return (
        f'<li><a class="tile {state} {tile.shape}" {place} title="{state}: {words(tile.told)}"'
        f' aria-label="{node}: {state}">{tile.letter}</a></li>'
    )


def troubled(nodes: Iterable[admin_pb2.NodeSummary]) -> dict[str, Tile]:
    """Return the tile of each node that is not simply well, the worst first."""
    places = {state: place for place, state in enumerate(STATES)}
    tiles = [tile for tile in map(tile_of, nodes) if tile.state != "healthy"]
    tiles.sort(key=lambda tile: (places.get(tile.state, -1), tile.node))
    return {tile.node: tile for tile in tiles}
