"""Entry point of `everstep`: the group of its commands, and an exit code for every outcome."""

import os
import sys
import time
from collections.abc import Sequence
from typing import TextIO

import click
from rich.console import Console

from everstep_cli.client.grpc_admin import connect
from everstep_cli.commands import (
    check,
    completion,
    controllers,
    demo,
    drivers,
    events,
    history,
    inject,
    jobs,
    maintenance,
    nodes,
    operate,
    page,
    policy,
    report,
    tokens,
    version,
    webhooks,
)
from everstep_cli.commands.completion import PROGRAM, VARIABLE
from everstep_cli.commands.next_command import Commands, next_command
from everstep_cli.commands.session import AdminSession
from everstep_cli.views.tables import PIPED_WIDTH


class _Everstep(Commands):
    """The group of all commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line; say where an option belongs that stands before the command."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            where = f"options stand after the command: everstep nodes {error.option_name} …"
            message = f"No such option {error.option_name!r} here; {where}"
            raise click.UsageError(message, ctx) from error


@click.group(cls=_Everstep, context_settings={"help_option_names": ["-h", "--help"]})
def everstep() -> None:
    r"""Keep training jobs stepping through every failure, and account for every second lost.

    \b
    First steps:
      everstep demo                      the whole loop on this machine, in a minute
      everstep nodes                     what the controller knows of every node
      everstep why NAME                  why a node or job is in its state
      everstep snapshots JOB             what a job would go back to, and where that is
      everstep ettr JOB                  where the time of a job went
      everstep report JOB                the same as a page to pass on
      everstep page                      all of it in a browser

    Every command takes --json and --controller ADDRESS (or EVERSTEP_CONTROLLER), and ends with
    0 when it was done, 1 when the controller could not be asked or said no, 2 when the command line
    was wrong or a name is unknown.
    """


_GROUPS = (
    *(demo, nodes, events, history, jobs, report, page, operate, policy, drivers, maintenance),
    *(controllers,),
    *(check, inject, webhooks, tokens, version, completion),
)
for _command in (command for group in _GROUPS for command in group.COMMANDS):
    everstep.add_command(_command)

# A raw docstring has two characters where click looks for the one that keeps lines as they are.
_BELOW = (
    *maintenance.maintenance.commands.values(),
    *nodes.nodes.commands.values(),
    *tokens.tokens.commands.values(),
    *controllers.controller.commands.values(),
    *webhooks.webhooks.commands.values(),
)
for _shown in (everstep, *everstep.commands.values(), *_BELOW):
    _shown.help = (_shown.help or "").replace(r"\b", "\b")


# As shells count: 128 + SIGINT.
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code: 0 done, 1 not done, 2 wrong command line."""
    session = AdminSession(connect, screen(), time.time_ns)
    return run_command(session, sys.argv[1:] if arguments is None else arguments)


def run_command(session: AdminSession, arguments: Sequence[str]) -> int:
    """Run one command with what it needs given."""
    try:
        code = everstep.main(
            list(arguments),
            prog_name=PROGRAM,
            complete_var=VARIABLE,
            obj=session,
            standalone_mode=False,
        )
    except click.ClickException as error:
        error.show()
        if isinstance(error, click.UsageError) and (hint := next_command(error)):
            click.echo(hint, err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except OSError as error:
        click.echo(f"Error: the answer cannot be written: {error.strerror}", err=True)
        _abandon_output()
        return 1
    return code if isinstance(code, int) else 0


def screen(file: TextIO | None = None, width: int | None = None) -> Console:
    """Return where answers are drawn. What a job wrote is text: "[/x]" in it is no markup.

    A pipe or a file has no width: there a row is a line, for grep and awk.
    """
    console = Console(file=file, width=width, highlight=False, markup=False, emoji=False)
    if width is None and not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = PIPED_WIDTH
    return console


def _abandon_output() -> None:
    """Keep the interpreter's last flush from failing on a standard output that is full."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
