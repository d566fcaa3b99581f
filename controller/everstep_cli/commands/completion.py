"""Completion in the shell: the script to install, and the names that a controller knows."""

from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from everstep_cli.client.admin import Admin, AdminError, list_nodes
from everstep_cli.client.connection import Connection
from everstep_cli.commands.session import AdminSession
from everstep_proto.generated import admin_pb2
from everstep_proto.local.address import default_address, default_secret_file

PROGRAM = "everstep"
VARIABLE = "_EVERSTEP_COMPLETE"

# A shell that hangs at TAB is worse than one that completes nothing.
_PATIENCE_S = 1.0


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    r"""Print the script that completes commands and names in your shell.

    \b
    Examples:
      everstep completion bash > ~/.local/share/bash-completion/completions/everstep
      everstep completion zsh > "${fpath[1]}/_everstep"
      everstep completion fish > ~/.config/fish/completions/everstep.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.ClickException(f"no completion for {shell}; try 'everstep completion bash'")
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, PROGRAM, VARIABLE).source())


def node_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the nodes whose names begin so."""
    return _names(context, incomplete, lambda admin: [n.node for n in list_nodes(admin).nodes])


def job_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the jobs whose names begin so."""

    def known(admin: Admin) -> list[str]:
        reply = admin.call(lambda stub: stub.ListJobs, admin_pb2.ListJobsRequest())
        return [one.job for one in reply.jobs]

    return _names(context, incomplete, known)


def window_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the maintenance windows whose names begin so."""

    def known(admin: Admin) -> list[str]:
        request = admin_pb2.ListMaintenanceRequest()
        reply = admin.call(lambda stub: stub.ListMaintenance, request)
        return [one.window for one in reply.windows]

    return _names(context, incomplete, known)


def group_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the groups of nodes whose names begin so."""

    def known(admin: Admin) -> list[str]:
        reply = admin.call(lambda stub: stub.GetPolicy, admin_pb2.GetPolicyRequest())
        return [one.group for one in reply.groups]

    return _names(context, incomplete, known)


def any_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the nodes and jobs whose names begin so."""
    return [
        *node_names(context, parameter, incomplete),
        *job_names(context, parameter, incomplete),
    ]


def _names(
    context: click.Context, incomplete: str, ask: Callable[[Admin], Iterable[str]]
) -> list[str]:
    session = context.find_object(AdminSession)
    if session is None:
        return []
    params = context.params
    asked = Connection(
        address=str(params.get("controller") or default_address()),
        secret_file=Path(str(params.get("secret_file") or default_secret_file())),
        timeout_s=_PATIENCE_S,
    )
    try:
        with session.connect(asked) as admin:
            return [name for name in ask(admin) if name.startswith(incomplete)]
    except AdminError:
        return []


COMMANDS = (completion,)
