"""Entry of the command line: put the parts together, and turn every outcome into an exit code."""

import sys
import time
from collections.abc import Sequence

import click
from rich.console import Console

from everstep_cli.cli import everstep
from everstep_cli.completion import PROGRAM, VARIABLE
from everstep_cli.grpc_admin import connect
from everstep_cli.session import Session

# As shells count: 128 + SIGINT.
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code: 0 done, 1 not done, 2 wrong command line."""
    session = Session(connect, Console(highlight=False), time.time_ns)
    return run(session, sys.argv[1:] if arguments is None else arguments)


def run(session: Session, arguments: Sequence[str]) -> int:
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
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main())
