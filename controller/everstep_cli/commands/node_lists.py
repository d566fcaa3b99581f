"""Node lists as Slurm writes them, "gpu-[0001-0016],gpu-0020": what people type, as names."""

import math
import re
from collections.abc import Iterable

import click

from everstep_cli.commands.completion import any_names, node_names
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


def names_in_all(texts: Iterable[str]) -> list[str]:
    """Return the nodes that several lists name, each once. Raises click.BadParameter."""
    return list(dict.fromkeys(name for text in texts for name in _names_in(text)))


def all_named_nodes(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> list[str]:
    """Return the nodes that several arguments name, or an option that is given several times."""
    return names_in_all(texts)


def several_words(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> list[str]:
    """Return the words of an option that is given several times, or once with commas."""
    return [word for one in given for word in one.split(",") if word]


def named_nodes_or_all(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> list[str]:
    """Return the names that arguments have; one empty name, for everything, where there is none."""
    return all_named_nodes(context, parameter, texts) or [""]


# "gpu-0042 gpu-0043", "gpu-0042,gpu-0043" and 'gpu-[0042-0043]' are the same.
nodes_argument = click.argument(
    "names",
    metavar="NODES...",
    nargs=-1,
    required=True,
    callback=all_named_nodes,
    shell_complete=node_names,
)
several_subjects_argument = click.argument(
    "subjects",
    metavar="[NODES|JOB]...",
    nargs=-1,
    callback=named_nodes_or_all,
    shell_complete=any_names,
)


def single_name(_: click.Context, __: click.Parameter, text: str) -> str:
    """Return a name as it is; a list of nodes is refused where one name is needed."""
    if "[" in text or "," in text:
        raise click.BadParameter(
            f"{text!r} is a list of nodes, and this takes one name; to list them:"
            f" everstep nodes --node {text!r}"
        )
    return text


def _names_in(text: str) -> list[str]:
    try:
        return expand(text)
    except NodeListError as error:
        raise click.BadParameter(str(error)) from error
