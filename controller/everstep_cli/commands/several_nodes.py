"""Several nodes in one command: an unknown name is found first, and each outcome is told."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import click
from google.protobuf.message import Message
from rich.console import RenderableType

from everstep_cli.client.admin import AdminError, RefusedError, list_nodes
from everstep_cli.commands.session import Ask
from everstep_cli.views import formatting, json_output
from everstep_proto.generated import admin_pb2

M = TypeVar("M", bound=Message)


def each_node(
    ask: Ask,
    names: Sequence[str],
    order: Callable[[str], M],
    view: Callable[[str, M], Iterable[RenderableType]],
) -> None:
    """Give an order or ask for each node, and show each answer; with --json one on a line.

    A node that the controller refuses does not keep the others from it. Raises AdminError when one
    was refused, or nothing more could be asked; the sentence says which nodes are left.
    """
    if len(names) == 1:
        reply = order(names[0])
        ask.answer(reply, *view(names[0], reply))
        return
    refuse_unknown(ask, names)
    refused: list[str] = []
    for place, name in enumerate(names):
        try:
            reply = order(name)
        except RefusedError as error:
            refused.append(name)
            click.echo(f"{name}: {error}", err=True)
            continue
        except AdminError as error:
            left = formatting.names([*refused, *names[place:]])
            raise AdminError(f"{error}; nothing was done for {left}") from error
        if ask.as_json:
            click.echo(json_output.to_line(reply))
            continue
        for part in view(name, reply):
            ask.console.print(part)
    if refused:
        raise AdminError(f"not done for {formatting.names(refused)}, for what is said above")


def refuse_unknown(ask: Ask, names: Sequence[str]) -> None:
    """Raise AdminError when a name is unknown: before anything is done, or shown as if all was."""
    list_nodes(ask.admin, admin_pb2.ListNodesRequest(names=names, summary_only=True))
