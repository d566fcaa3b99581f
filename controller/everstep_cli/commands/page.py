"""`everstep page`: the fleet in a browser, served by a process of its own."""

import time
from pathlib import Path

import click

from everstep_cli.commands.session import Ask, asks_controller
from everstep_common.extras import install_line

_ADDRESS = "127.0.0.1:7436"


@click.command()
@click.option(
    "--listen",
    "address",
    metavar="HOST:PORT",
    default=_ADDRESS,
    show_default=True,
    help="Where browsers find it: an address of this machine alone.",
)
@click.option(
    "--address-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the address that lets somebody in into this file, instead of printing it.",
)
@click.option(
    "--grafana",
    metavar="URL",
    default="",
    envvar="EVERSTEP_GRAFANA",
    show_envvar=True,
    help="Where Everstep's boards are: nodes, jobs and the fleet then lead to theirs.",
)
@asks_controller
def page(ask: Ask, address: str, address_file: Path | None, grafana: str) -> None:
    r"""Show the fleet, its nodes, jobs and incidents in a browser.

    Prints an address that lets you in once; when it was opened, it prints the next one. The page
    asks the controller as this command line does, and changes nothing. It ends with Ctrl-C.

    \b
    Examples:
      everstep page
      ssh -L 7436:127.0.0.1:7436 control.cluster.example   # then open the address here
    """
    try:
        from everstep_cli.page.grafana import grafana_problem
        from everstep_cli.page.serving import ServeError, keep_in_file, serve
    except ImportError as error:
        raise click.ClickException(
            f"{error.name} is not installed; run: {install_line('page')}"
        ) from error
    if grafana and (problem := grafana_problem(grafana)):
        raise click.UsageError(f"--grafana: {problem}")
    told = click.echo if address_file is None else keep_in_file(address_file)
    try:
        serve(ask.admin, address, time.monotonic, told, grafana)
    except ServeError as error:
        raise click.UsageError(f"--listen: {error}") from error


COMMANDS = (page,)
