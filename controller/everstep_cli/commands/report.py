"""`everstep report`: where the time of a job or of all jobs went, as a page that people pass on."""

import contextlib
import os
from collections.abc import Iterator, Set
from datetime import UTC, datetime
from pathlib import Path

import click

from everstep_cli.commands.completion import job_names
from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.report.account import Account
from everstep_cli.report.from_admin import NoTimeError, Range, account_of_days, account_of_job
from everstep_cli.views import formatting
from everstep_common.extras import install_line
from everstep_common.version import VERSION
from everstep_proto.generated import admin_pb2

_EVENTS_MAX = 10_000
# As long as the controller keeps its history where nobody has said otherwise.
_DAYS_MAX = 400
_NS = 1_000_000_000
_DAY_NS = 86_400 * _NS


def _day(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    """Return when a day begins, in nanoseconds since 1970."""
    if text is None:
        return None
    try:
        return int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) * _NS
    except ValueError:
        raise click.BadParameter(f"{text!r} is no day: say 2026-11-30") from None


@click.command()
@click.argument("name", metavar="[JOB]", default="", shell_complete=job_names)
@click.option("--fleet", is_flag=True, help="Of all jobs together instead.")
@click.option("--from", "begin_ns", metavar="DAY", callback=_day, help="From this day on, in UTC.")
@click.option("--to", "last_ns", metavar="DAY", callback=_day, help="To this day, which counts.")
@click.option(
    "--last",
    "days",
    metavar="DAYS",
    type=click.IntRange(1, _DAYS_MAX),
    help="So many days, today among them. [default: of the fleet 30, of a job its whole life]",
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
def report(
    ask: Ask,
    name: str,
    fleet: bool,
    begin_ns: int | None,
    last_ns: int | None,
    days: int | None,
    output: Path,
) -> None:
    r"""Write a page about where the time of JOB, or of all jobs, went.

    One file of HTML that needs nothing else and prints: from all time to training, what each
    failure cost by stage, cause and node, who was suspected and found innocent, what automation did
    not do and why, and what the words mean. The first page is for whoever reads no more.

    \b
    Examples:
      everstep report llama-70b -o llama-70b.html
      everstep report --fleet --last 90 -o quarter.html
      everstep report --fleet --from 2026-10-01 --to 2026-10-31 -o october.html
    """
    if bool(name) == fleet:
        raise click.UsageError("name one JOB, or say --fleet")
    if ask.as_json:
        command = f"everstep ettr {name}".rstrip()
        raise click.UsageError(f"a report is a page: '{command} --json' has its numbers")
    wanted = _range(ask.now_ns, begin_ns, last_ns, days or (30 if fleet else None))
    account = _of_job(ask, name) if wanted is None else _of_days(ask, name, wanted)
    _write(output, _page(account, ask.now_ns))
    size = formatting.size(output.stat().st_size)
    told = formatting.count(len(account.incidents), "incident")
    click.echo(f"{output}: {account.subject}, {told}, {size}")


def _range(
    now_ns: int, begin_ns: int | None, last_ns: int | None, days: int | None
) -> Range | None:
    """Return the days that are asked for; None for all."""
    today_ns = now_ns // _DAY_NS * _DAY_NS
    if begin_ns is None and last_ns is None:
        return Range(today_ns - (days - 1) * _DAY_NS, today_ns + _DAY_NS) if days else None
    end_ns = (today_ns if last_ns is None else last_ns) + _DAY_NS
    if begin_ns is None:
        begin_ns = end_ns - (days or 30) * _DAY_NS
    if begin_ns > today_ns:
        raise click.UsageError("--from is in the future")
    if begin_ns >= end_ns:
        raise click.UsageError("--from is after --to")
    if (today_ns - begin_ns) // _DAY_NS >= _DAYS_MAX:
        raise click.UsageError(f"history has {_DAYS_MAX} days: begin later")
    return Range(begin_ns, end_ns)


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
    # Of a job that has ended nobody is a member any more.
    blamed = (one.node for one in ledger.incidents if one.node)
    about = frozenset((name, *detail.summary.members, *blamed))
    life = Range(ledger.begin_ns, ledger.begin_ns + ledger.wall_ns)
    return account_of_job(ledger, detail, _events(ask, life, about))


def _of_days(ask: Ask, name: str, wanted: Range) -> Account:
    today_ns = ask.now_ns // _DAY_NS * _DAY_NS
    days = (today_ns - wanted.begin_ns) // _DAY_NS + 1
    asked = admin_pb2.GetFleetLedgerRequest(period="day", periods=days, job=name)
    ledger = ask.admin.call(lambda stub: stub.GetFleetLedger, asked, name)
    if name:
        detail = ask.admin.call(lambda stub: stub.GetJob, admin_pb2.GetJobRequest(job=name), name)
        incidents = detail.incidents
        blamed = (one.node for one in incidents if one.node)
        about: Set[str] | None = frozenset((name, *detail.summary.members, *blamed))
    else:
        every = admin_pb2.ListIncidentsRequest()
        incidents = ask.admin.call(lambda stub: stub.ListIncidents, every).incidents
        about = None
    events = _events(ask, wanted, about)
    subject = f"Job {name}" if name else "All jobs"
    try:
        return account_of_days(subject, ledger, wanted, incidents, events)
    except NoTimeError as error:
        raise click.ClickException(f"nothing to report of these days: {error}") from error


def _events(ask: Ask, wanted: Range, about: Set[str] | None) -> list[admin_pb2.Event]:
    """Return the events of a time, oldest first; of some subjects only, or of all for None."""
    request = admin_pb2.WatchEventsRequest(limit=_EVENTS_MAX, since_ns=wanted.begin_ns)
    return [
        one
        for one in _each(ask, request)
        if wanted.has(one.at_ns) and (about is None or one.subject in about)
    ]


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
