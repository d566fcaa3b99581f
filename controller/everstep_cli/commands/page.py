"""`everstep page`: the fleet in a browser, served by a process of its own."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.page.doors import Doors
from everstep_cli.page.grafana import grafana_problem
from everstep_common.extras import install_line
from everstep_proto.tls import Role

_ADDRESS = "127.0.0.1:7436"
_FILE = click.Path(dir_okay=False)
_OPTIONS = (
    click.option(
        "--listen",
        metavar="ADDRESS",
        default=_ADDRESS,
        show_default=True,
        envvar="EVERSTEP_PAGE_LISTEN",
        show_envvar=True,
        help="Where browsers find it: HOST:PORT, or unix:/path for a proxy.",
    ),
    click.option(
        "--name",
        "names",
        metavar="HOST",
        multiple=True,
        envvar="EVERSTEP_PAGE_NAMES",
        show_envvar=True,
        help="Name by which browsers ask for it; off this machine it needs one. Repeatable.",
    ),
    click.option(
        "--role",
        "roles",
        type=click.Choice([Role.VIEWER.value, Role.OPERATOR.value]),
        multiple=True,
        default=(Role.VIEWER.value,),
        show_default=True,
        envvar="EVERSTEP_PAGE_ROLES",
        show_envvar=True,
        help="Print an address for this role; operators see output and stacks. Repeatable.",
    ),
    click.option(
        "--certificate",
        type=_FILE,
        envvar="EVERSTEP_PAGE_CERTIFICATE",
        show_envvar=True,
        help="File with the certificate that browsers are shown, and its chain.",
    ),
    click.option(
        "--key",
        type=_FILE,
        envvar="EVERSTEP_PAGE_KEY",
        show_envvar=True,
        help="File with its private key.",
    ),
    click.option(
        "--client-ca",
        type=_FILE,
        envvar="EVERSTEP_PAGE_CLIENT_CA",
        show_envvar=True,
        help="File with the authority of browsers' certificates: common name and role count.",
    ),
    click.option(
        "--user-header",
        metavar="HEADER",
        default="",
        envvar="EVERSTEP_PAGE_USER_HEADER",
        show_envvar=True,
        help="Header in which a proxy names who asks.",
    ),
    click.option(
        "--proxy-user",
        metavar="LOGIN",
        default="",
        envvar="EVERSTEP_PAGE_PROXY_USER",
        show_envvar=True,
        help="Login of the proxy's processes, at a Unix socket: no other may connect.",
    ),
    click.option(
        "--proxy-certificate",
        metavar="NAME",
        default="",
        envvar="EVERSTEP_PAGE_PROXY_CERTIFICATE",
        show_envvar=True,
        help="Common name in the proxy's certificate, at a port.",
    ),
    click.option(
        "--operator",
        "operators",
        metavar="LOGIN",
        multiple=True,
        envvar="EVERSTEP_PAGE_OPERATORS",
        show_envvar=True,
        help="Login that is an operator where a proxy names it. Repeatable.",
    ),
    click.option(
        "--grafana",
        metavar="URL",
        default="",
        envvar="EVERSTEP_GRAFANA",
        show_envvar=True,
        help="Where Everstep's boards are: nodes, jobs and the fleet then lead to theirs.",
    ),
    click.option(
        "--address-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Write the address that lets somebody in into this file, instead of printing it.",
    ),
)


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@_with_options
@asks_controller
def page(
    ask: Ask,
    listen: str,
    names: tuple[str, ...],
    roles: tuple[str, ...],
    certificate: str | None,
    key: str | None,
    client_ca: str | None,
    user_header: str,
    proxy_user: str,
    proxy_certificate: str,
    operators: tuple[str, ...],
    grafana: str,
    address_file: Path | None,
) -> None:
    r"""Show the fleet, its nodes, jobs and incidents in a browser.

    Prints an address that lets you in once; when it was opened, it prints the next one. The page
    asks the controller as this command line does, and changes nothing. It ends with Ctrl-C.

    Off this machine it needs TLS. Behind a proxy it listens at a Unix socket, or knows the proxy by
    its certificate; docs/page.md has an example of nginx.

    \b
    Examples:
      everstep page
      ssh -L 7436:127.0.0.1:7436 control.cluster.example   # then open the address here
      everstep page --listen 0.0.0.0:7436 --name fleet.example --certificate page.pem --key page.key
    """
    doors = Doors(
        listen=listen,
        names=names,
        roles=tuple(dict.fromkeys(map(Role, roles))),
        certificate=certificate or "",
        key=key or "",
        client_ca=client_ca or "",
        user_header=user_header,
        proxy_user=proxy_user,
        proxy_certificate=proxy_certificate,
        operators=frozenset(operators),
    )
    if grafana and (problem := grafana_problem(grafana)):
        raise click.UsageError(f"--grafana: {problem}")
    _serve(ask, doors, grafana, address_file)


def _serve(ask: Ask, doors: Doors, grafana: str, address_file: Path | None) -> None:
    try:
        from everstep_cli.page.serving import ServeError, keep_in_file, serve, told_lines
    except ImportError as error:
        raise click.ClickException(
            f"{error.name} is not installed; run: {install_line('page')}"
        ) from error

    def tell(addresses: Mapping[Role, str]) -> None:
        click.echo(told_lines(addresses))

    told = tell if address_file is None else keep_in_file(address_file)
    try:
        serve(ask.admin, doors, time.monotonic, told, grafana)
    except ServeError as error:
        raise click.UsageError(str(error)) from error


COMMANDS = (page,)
