"""Node lists as Slurm writes them, "gpu-[0001-0016],gpu-0020": what people type, as names."""

import math
import re

from everstep_common.extras import install_line

# More than any fleet has: a slip of the finger must not fill the memory.
_NODES_MAX = 200_000
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?:/\d+)?)?", re.ASCII)
# Between two commas that are in no bracket; a bracket that is not closed is refused later.
_PART = re.compile(r"(?:[^,\[]|\[[^\]]*\]?)+")
_FOLD = re.compile(r"\[([^\]]*)\]?")
_MISSING = (
    "{text!r} is a list of nodes, and what reads such lists is not installed: "
    "{install}, or name single nodes with commas between them"
)
_HOW = "write gpu-[0001-0016,0020]"


class NodeListError(ValueError):
    """Text that is no list of nodes; one sentence."""


def expand(text: str) -> list[str]:
    """Return the names in a list, each once, in their order. Raises NodeListError."""
    if "[" not in text and "]" not in text:
        names = [name.strip() for name in text.split(",")]
        if not all(names):
            raise NodeListError(f"{text!r} names nothing between two commas, or at its end")
        return list(dict.fromkeys(names))
    return _expanded(text)


def _expanded(text: str) -> list[str]:
    try:
        # Most commands name no list: they do not wait for this import.
        from ClusterShell.NodeSet import (
            RESOLVER_NOGROUP,
            NodeSet,
            NodeSetException,
        )
    except ImportError as error:
        raise NodeListError(_MISSING.format(text=text, install=install_line("hostlist"))) from error
    if _size(text) > _NODES_MAX:
        raise NodeListError(f"{text!r} names more than {_NODES_MAX} nodes")
    try:
        # Groups are asked of programs that a user of this machine configures: not from here.
        return [str(name) for name in NodeSet(text, resolver=RESOLVER_NOGROUP)]
    except NodeSetException as error:
        raise NodeListError(f"{text!r} is no list of nodes: {error}; {_HOW}") from error


def _size(text: str) -> int:
    """Return how many names there may be at most, before any is made. Raises NodeListError."""
    return sum(
        math.prod(_fold_size(text, fold) for fold in _FOLD.findall(part))
        for part in _PART.findall(text)
    )


def _fold_size(text: str, fold: str) -> int:
    return sum(_range_size(text, one) for one in fold.split(","))


def _range_size(text: str, one: str) -> int:
    # The library reads more than people write ("1-1_000", "1-+9"), which would not be counted.
    found = _RANGE.fullmatch(one.strip())
    if found is None:
        raise NodeListError(f"{text!r} is no list of nodes: {one!r} is no range; {_HOW}")
    # Twenty digits are too many already, and a number of a million digits takes minutes to read.
    first, last = (int(digits.lstrip("0")[:20] or 0) for digits in (found[1], found[2] or found[1]))
    return abs(last - first) + 1
