"""`everstep demo`: faults on a small cluster here; and the entries of what needs no cluster."""

import json
import os
import signal
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from everstep_cli.commands.session import AdminSession
from everstep_common.extras import install_line

if TYPE_CHECKING:
    from everstep_cli.demo.report import DemoReport

# A Unix socket's path has at most 107 bytes (unix(7)), and "/node-1/run/agent.sock" is one.
_FOLDER_MAX = 80


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document at the end.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep logs, journal and losses in this empty folder.",
)
@click.option(
    "--steps",
    type=click.IntRange(100, 100_000),
    default=360,
    show_default=True,
    help="Steps of the training job.",
)
@click.option(
    "--page",
    "with_page",
    is_flag=True,
    help="Show it in a browser too, on this machine, until Ctrl-C.",
)
@click.pass_obj
def demo(
    session: AdminSession, as_json: bool, keep: Path | None, steps: int, with_page: bool
) -> None:
    r"""Train through three failures on this machine, and account for every second.

    Starts a controller and five agents as processes on loopback, and a real training job on four of
    them. Kills one training process, then a whole node, then reports a failed GPU; each time the
    job goes on. At the end every loss is compared, to the bit, with an uninterrupted run.

    Needs about a minute, no GPU and no root. Leaves nothing behind. Exit code 1 if anything that it
    claims did not happen.

    \b
    Examples:
      everstep demo
      everstep demo --json | jq '.claims[] | select(.held | not)'
      everstep demo --keep /tmp/demo   # then read the logs there
      everstep demo --page             # open the address that it prints
    """
    # Here, so that no other command pays for importing the demo.
    from everstep_cli.demo import demo_run, display
    from everstep_cli.demo.report import DemoReport

    _check(keep, with_page=with_page)
    viewer: display.Display = display.NoDisplay()
    if not as_json:
        screen = session.console
        viewer = (
            display.TerminalDisplay(screen) if screen.is_terminal else display.LogDisplay(screen)
        )

    told: list[DemoReport] = []

    def stay(result: DemoReport, address: str) -> None:
        told.append(result)
        _tell(session, result, as_json=as_json)
        click.echo(f"The page stays until Ctrl-C: {address}", err=as_json)
        with suppress(KeyboardInterrupt):
            signal.pause()

    page = demo_run.DemoPage(partial(_tell_address, as_json=as_json), stay) if with_page else None
    try:
        result = demo_run.run_demo(viewer, steps, keep, page)
    except KeyboardInterrupt:
        click.echo("Interrupted. Nothing of the demo runs any more.", err=True)
        raise
    if not told:
        _tell(session, result, as_json=as_json)
    if not result.passed:
        click.get_current_context().exit(1)


def _tell_address(address: str, *, as_json: bool) -> None:
    click.echo(f"The page, for one browser: {address}", err=as_json)


def _tell(session: AdminSession, result: "DemoReport", *, as_json: bool) -> None:
    """Print what the demo has shown."""
    from everstep_cli.demo import report

    if as_json:
        click.echo(json.dumps(result.to_dict(), indent=2, ensure_ascii=False))
    else:
        for sheet in report.sheets(result):
            session.console.print(sheet)
    for failure in result.failures() if as_json else []:
        click.echo(f"everstep demo: {failure}", err=True)


def _check(keep: Path | None, *, with_page: bool) -> None:
    if with_page and find_spec("starlette") is None:
        raise click.UsageError(f"--page: starlette is not installed; run: {install_line('page')}")
    if keep is None:
        return
    if keep.exists() and any(keep.iterdir()):
        raise click.UsageError(f"--keep: {keep} is not empty; name a new folder")
    if len(os.fsencode(keep.resolve())) > _FOLDER_MAX:
        raise click.UsageError(f"--keep: {keep} is too long for the sockets in it; name a shorter")


# Commands of the base install, which this program lists and never runs.
_LISTED = {"ignore_unknown_options": True}


@click.command(context_settings=_LISTED, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(arguments: tuple[str, ...]) -> None:
    r"""Start a training script on this node ('everstep run --help').

    \b
    Example:
      everstep run --job NAME --nnodes 3:4 --nproc-per-node 1 -- python train.py
    """
    raise click.UsageError("'everstep run' is the launcher; start it as the command 'everstep'")


@click.command(context_settings=_LISTED, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def hang(arguments: tuple[str, ...]) -> None:
    r"""Tell who holds a job back, from dumps or here ('everstep hang --help').

    \b
    Examples:
      everstep hang /shared/hang
      everstep hang --job NAME
    """
    raise click.UsageError("'everstep hang' is of the base install; start it as 'everstep'")


@click.command(context_settings=_LISTED, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def slow(arguments: tuple[str, ...]) -> None:
    r"""Tell who makes the others wait, from a table ('everstep slow --help').

    \b
    Example:
      everstep slow steps.csv
    """
    raise click.UsageError("'everstep slow' is a program of its own; start it as 'everstep'")


COMMANDS = (demo, run, hang, slow)
