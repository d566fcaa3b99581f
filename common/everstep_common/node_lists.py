"""Node lists as Slurm writes them, "gpu-[0001-0016],gpu-0020": as names, and names as one."""

import math
import re
from collections.abc import Sequence

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


def fold(nodes: Sequence[str]) -> str:
    """Return node names as Slurm folds them, in their order: "node-[1-4,9],login"."""
    groups: list[tuple[str, list[str]]] = []
    for name in nodes:
        stem, number = _split(name)
        if number and groups and groups[-1][0] == stem and groups[-1][1]:
            groups[-1][1].append(number)
        else:
            groups.append((stem, [number] if number else []))
    return ",".join(_folded(stem, numbers) for stem, numbers in groups)


def _split(name: str) -> tuple[str, str]:
    match = re.fullmatch(r"(.*?)(\d+)", name, re.ASCII)
    # A bracket in a name would be one of the notation.
    return (match[1], match[2]) if match and not set("[],") & set(name) else (name, "")


def _folded(stem: str, numbers: Sequence[str]) -> str:
    if len(numbers) < 2:
        return stem + "".join(numbers)
    runs: list[list[str]] = []
    for number in numbers:
        if runs and _follows(runs[-1][-1], number):
            runs[-1].append(number)
        else:
            runs.append([number])
    return f"{stem}[{','.join(map(_span, runs))}]"


def _follows(before: str, number: str) -> bool:
    padded = before[0] == "0" or number[0] == "0"
    same_form = len(before) == len(number) or not padded
    return same_form and int(number) == int(before) + 1


def _span(run: Sequence[str]) -> str:
    return run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}"
