"""One order for several nodes: no name is unknown before one is given, and each outcome is told."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import click
from google.protobuf.message import Message
from rich.console import RenderableType

from everstep_cli.client.admin import AdminError, RefusedError
from everstep_cli.commands.session import Ask
from everstep_cli.views import json_output, words
from everstep_proto.generated import admin_pb2

M = TypeVar("M", bound=Message)


def each_node(
    ask: Ask,
    names: Sequence[str],
    order: Callable[[str], M],
    view: Callable[[M], Iterable[RenderableType]],
) -> None:
    """Give an order for each node, and show each answer; with --json one on a line for several.

    A node that the controller refuses does not keep the others from it. Raises AdminError when one
    was refused, or nothing more could be asked; the sentence says which nodes are left.
    """
    if len(names) == 1:
        reply = order(names[0])
        ask.answer(reply, *view(reply))
        return
    # An unknown name is found before anything is done.
    ask.admin.nodes(admin_pb2.ListNodesRequest(names=names, summary_only=True))
    refused: list[str] = []
    for place, name in enumerate(names):
        try:
            reply = order(name)
        except RefusedError as error:
            refused.append(name)
            click.echo(f"{name}: {error}", err=True)
            continue
        except AdminError as error:
            left = words.names([*refused, *names[place:]])
            raise AdminError(f"{error}; nothing was done for {left}") from error
        _show(ask, reply, view)
    if refused:
        raise AdminError(f"nothing was done for {words.names(refused)}, for what is said above")


def _show(ask: Ask, reply: M, view: Callable[[M], Iterable[RenderableType]]) -> None:
    if ask.as_json:
        click.echo(json_output.to_line(reply))
        return
    for part in view(reply):
        ask.console.print(part)
