"""Entry point of `everstep`: puts the parts together, and turns every outcome into an exit code."""

import os
import sys
import time
from collections.abc import Sequence
from typing import TextIO

import click
from rich.console import Console

from everstep_cli.cli import everstep
from everstep_cli.completion import PROGRAM, VARIABLE
from everstep_cli.grpc_admin import connect
from everstep_cli.session import AdminSession

# As shells count: 128 + SIGINT.
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code: 0 done, 1 not done, 2 wrong command line."""
    session = AdminSession(connect, screen(), time.time_ns)
    return run(session, sys.argv[1:] if arguments is None else arguments)


def run(session: AdminSession, arguments: Sequence[str]) -> int:
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
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except OSError as error:
        click.echo(f"Error: the answer cannot be written: {error.strerror}", err=True)
        _abandon_output()
        return 1
    return code if isinstance(code, int) else 0


def screen(file: TextIO | None = None, width: int | None = None) -> Console:
    """Return where answers are drawn. What a job wrote is text: "[/x]" in it is no markup."""
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def _abandon_output() -> None:
    """Keep the interpreter's last flush from failing on a standard output that is full."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
