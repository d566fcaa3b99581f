"""Main function of ``everstep run``: from the command line to the exit code."""

import os
import sys
from collections.abc import Sequence

from everstep.launch.command_line.option_parser import UsageError
from everstep.launch.command_line.options import parse_options
from everstep.launch.job_token import TokenError, job_token
from everstep.launch.launcher import Launcher
from everstep.launch.output.terminal import Terminal
from everstep.launch.processes import children
from everstep.launch.processes.children import Sweeping

_EXIT_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a node's part of a job; return the exit code."""
    terminal, code = Terminal(), 1
    try:
        code = _run(terminal, sys.argv[2:] if arguments is None else arguments)
    finally:
        terminal.finish(succeeded=code == 0)
    return code


def _run(terminal: Terminal, arguments: Sequence[str]) -> int:
    try:
        options = parse_options(arguments)
        token = job_token(options.job, options.token_file)
    except (UsageError, TokenError) as error:
        terminal.say(str(error))
        return _EXIT_USAGE
    terminal.keep_in(options.streams.folder)
    children.adopt_orphans()
    sweeping = Sweeping()
    code = Launcher(options, token, terminal, sweeping.environment(os.environ)).run()
    sweeping.dismiss()
    options.streams.tidy()
    return code
