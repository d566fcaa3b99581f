"""Names of nodes at Slurm and in Everstep, and lists of them for Slurm's programs. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum

from everstep_controller.drivers.slurm.nodes import SlurmNode

# No list, range or word such as ALL, which scontrol takes for every node.
_ONE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*)")
_NO_NAMES = frozenset({"all"})
# A program's argument has 128 KiB at most (MAX_ARG_STRLEN); a line of a scontrol that was built
# without readline 4,096 bytes, with all that is in it besides the list.
ARGUMENT_BYTES_MAX = 100_000
LINE_BYTES_MAX = 3_000


class NodeNames(Enum):
    """Name of a node at Slurm that is its name in Everstep."""

    NAME = "name"
    HOSTNAME = "hostname"
    ADDRESS = "address"

    def of(self, node: SlurmNode) -> str:
        """Return a node's name in Everstep."""
        if self is NodeNames.NAME:
            return node.name
        return node.host if self is NodeNames.HOSTNAME else node.address


class NoteField(Enum):
    """Field of a node in which a claim is told to programs."""

    NONE = "none"
    COMMENT = "comment"
    EXTRA = "extra"


def is_one_name(name: str) -> bool:
    """Return whether a name can be that of one node, and of nothing else that Slurm knows."""
    return bool(_ONE_NAME.fullmatch(name)) and name.lower() not in _NO_NAMES


def by_our_names(
    nodes: Iterable[SlurmNode], names: NodeNames
) -> tuple[Mapping[str, SlurmNode], frozenset[str]]:
    """Return the nodes by their names in Everstep, and the names that several of them have."""
    found: dict[str, SlurmNode] = {}
    shared: set[str] = set()
    for node in nodes:
        name = names.of(node)
        if name in found:
            shared.add(name)
        found[name] = node
    return {name: node for name, node in found.items() if name not in shared}, frozenset(shared)


def node_lists(names: Iterable[str], bytes_max: int) -> Iterator[Sequence[str]]:
    """Yield names in lists of so many bytes at most."""
    part: list[str] = []
    size = 0
    for name in names:
        if part and size + len(name) + 1 > bytes_max:
            yield part
            part, size = [], 0
        part.append(name)
        size += len(name) + 1
    if part:
        yield part
