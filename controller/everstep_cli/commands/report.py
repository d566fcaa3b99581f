"""`everstep report`: where the time of a job or of all jobs went, as a page that people pass on."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from everstep_cli.commands.completion import job_names
from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.report.account import Account
from everstep_cli.report.from_admin import account_of_fleet, account_of_job
from everstep_cli.views import formatting
from everstep_common.extras import install_line
from everstep_common.version import VERSION
from everstep_proto.generated import admin_pb2

_EVENTS_MAX = 10_000


@click.command()
@click.argument("name", metavar="[JOB]", default="", shell_complete=job_names)
@click.option("--fleet", is_flag=True, help="Of all jobs together instead.")
@click.option(
    "--last",
    "days",
    metavar="DAYS",
    type=click.IntRange(1, 400),
    help="Of the fleet: so many days, in UTC, today among them. [default: 30]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("everstep-report.html"),
    show_default=True,
    help="The file to write; one that is there is replaced.",
)
@asks_controller
def report(ask: Ask, name: str, fleet: bool, days: int | None, output: Path) -> None:
    r"""Write a page about where the time of JOB, or of all jobs, went.

    One file of HTML that needs nothing else and prints: from all time to training, what each
    failure cost by stage, cause and node, who was suspected and found innocent, what automation did
    not do and why, and what the words mean. The first page is for whoever reads no more.

    \b
    Examples:
      everstep report llama-70b -o llama-70b.html
      everstep report --fleet --last 90 -o quarter.html
    """
    if bool(name) == fleet:
        raise click.UsageError("name one JOB, or say --fleet")
    if days and not fleet:
        raise click.UsageError("--last is of the fleet: a job's report is of its whole life")
    if ask.as_json:
        command = "everstep ettr" if fleet else f"everstep ettr {name}"
        raise click.UsageError(f"a report is a page: '{command} --json' has its numbers")
    account = _of_fleet(ask, days or 30) if fleet else _of_job(ask, name)
    _write(output, _page(account, ask.now_ns))
    size = formatting.size(output.stat().st_size)
    told = formatting.count(len(account.incidents), "incident")
    click.echo(f"{output}: {account.subject}, {told}, {size}")


def _page(account: Account, now_ns: int) -> str:
    try:
        from everstep_cli.report.page import page
    except ImportError as error:
        raise click.ClickException(
            f"{error.name} is not installed; run: {install_line('cli')}"
        ) from error
    return page(account, now_ns, VERSION)


def _of_job(ask: Ask, name: str) -> Account:
    ledger = ask.admin.call(lambda stub: stub.GetLedger, admin_pb2.GetLedgerRequest(job=name), name)
    detail = ask.admin.call(lambda stub: stub.GetJob, admin_pb2.GetJobRequest(job=name), name)
    return account_of_job(ledger, detail, _events(ask, ledger.begin_ns, [*detail.summary.members]))


def _of_fleet(ask: Ask, days: int) -> Account:
    asked = admin_pb2.GetFleetLedgerRequest(period="day", periods=days)
    ledger = ask.admin.call(lambda stub: stub.GetFleetLedger, asked)
    incidents = ask.admin.call(lambda stub: stub.ListIncidents, admin_pb2.ListIncidentsRequest())
    events = _events(ask, ledger.whole.begin_ns, [])
    return account_of_fleet(ledger, incidents.incidents, events)


def _events(ask: Ask, since_ns: int, subjects: Sequence[str]) -> list[admin_pb2.Event]:
    """Return the events since then, oldest first; of some subjects only, if there are any."""
    request = admin_pb2.WatchEventsRequest(limit=_EVENTS_MAX, since_ns=since_ns)
    wanted = frozenset(subjects)
    return [one for one in _each(ask, request) if not wanted or one.subject in wanted]


def _each(ask: Ask, request: admin_pb2.WatchEventsRequest) -> Iterator[admin_pb2.Event]:
    yield from ask.admin.stream(lambda stub: stub.WatchEvents, request, "", endless=False)


def _write(path: Path, text: str) -> None:
    """Write a file at once, so that nobody reads the half of it."""
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        made.write_text(text, encoding="utf-8")
        made.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            made.unlink()
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from error


COMMANDS = (report,)
