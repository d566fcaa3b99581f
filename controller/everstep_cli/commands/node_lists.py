"""Arguments that name nodes: one by one, with commas, or by lists as Slurm writes them."""

from collections.abc import Iterable

import click

from everstep_cli.commands.completion import any_names, node_names
from everstep_common.node_lists import NodeListError, expand


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
