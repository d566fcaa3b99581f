"""Main function of ``everstep run``: from the command line to the exit code."""

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from everstep.launch.command_line.option_parser import UsageError
from everstep.launch.command_line.options import LaunchOptions, parse_options
from everstep.launch.inspection.rank_files import rank_files
from everstep.launch.job_token import TokenError, job_token
from everstep.launch.launcher import Launcher
from everstep.launch.output.terminal import Terminal
from everstep.launch.processes import children
from everstep.launch.processes.children import Sweeping
from everstep.launch.standalone.own_services import (
    StandaloneError,
    ledger_line,
    own_services,
)
from everstep.launch.standalone.storing_starts import storing_start, taken_over
from everstep.launch.standalone.supervisor import answers
from everstep_common.extras import install_line

_EXIT_FAILED = 1
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
        terminal.keep_in(options.streams.folder)
        if options.may_start_services and not answers(Path(options.socket)):
            return _launch_alone(options, terminal)
        return _launch(options, terminal)
    except (UsageError, TokenError) as error:
        terminal.say(str(error))
        return _EXIT_USAGE
    except StandaloneError as error:
        terminal.say(str(error))
        return _EXIT_FAILED


def _launch_alone(options: LaunchOptions, terminal: Terminal) -> int:
    """Launch with a controller and an agent that are there for this job only."""
    _check_bucket(options.keep.bucket)
    storage = options.keep.storage
    if storage is None:
        return _launch_with_own(options, terminal)
    with storing_start(storage.path, options.job) as others:
        if others:
            terminal.say(taken_over(options.job, storage.path, others))
        return _launch_with_own(options, terminal)


def _launch_with_own(options: LaunchOptions, terminal: Terminal) -> int:
    with own_services(terminal.say) as services:
        terminal.say(
            "no agent runs on this node: this job has its own, and a controller, until it ends;"
            f" their logs are in {services.folder}"
        )
        terminal.say(
            f"to ask them, in another terminal: export EVERSTEP_CONTROLLER={services.controller};"
            f" everstep why {options.job}"
        )
        token_file = options.token_file or services.token_file
        # Each such run has a controller of its own, which has given no earlier job its id.
        keep = replace(options.keep, continues=not options.keep.fresh)
        alone = replace(
            options,
            socket=services.socket,
            token_file=token_file,
            agent_log=str(services.agent_log),
            keep=keep,
        )
        code = _launch(alone, terminal)
        # After a failure the first error is the last thing shown.
        if code == 0:
            terminal.say(ledger_line(services, options.job))
    return code


def _check_bucket(bucket: str) -> None:
    """Raise UsageError where an agent of this installation could store nothing in a bucket."""
    if bucket and not importlib.util.find_spec("boto3"):
        raise UsageError(
            f"--persist {bucket}: storage in a bucket needs boto3; run: {install_line('s3')}"
        )


def _launch(options: LaunchOptions, terminal: Terminal) -> int:
    token = job_token(options.job, options.token_file)
    children.adopt_orphans()
    with rank_files(terminal.say) as files:
        sweeping = Sweeping(files.folder if files else None)
        environ = sweeping.environment(os.environ)
        code = Launcher(options, token, terminal, environ, files).run()
        sweeping.dismiss()
    options.streams.tidy()
    return code
