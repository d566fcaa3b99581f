"""`everstep report`: where the time of a job or of all jobs went, as a page that people pass on."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Set
from pathlib import Path

import click

from everstep_cli.commands.completion import job_names
from everstep_cli.commands.day_range import DAY_NS, DAYS_MAX, day_range, from_option, to_option
from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.report.account import Account, IncidentAccount
from everstep_cli.report.from_admin import (
    NoTimeError,
    Range,
    Told,
    account_of_days,
    account_of_life,
    days_there_are,
)
from everstep_cli.report.from_history import incidents_of
from everstep_cli.report.sheet import incidents_csv
from everstep_cli.views import formatting
from everstep_common.extras import install_line
from everstep_common.version import VERSION
from everstep_proto.generated import admin_pb2

_EVENTS_MAX = 10_000
_HOUR_NS = 3_600_000_000_000


@click.command()
@click.argument("name", metavar="[JOB]", default="", shell_complete=job_names)
@click.option("--fleet", is_flag=True, help="Of all jobs together instead.")
@from_option
@to_option
@click.option(
    "--last",
    "days",
    metavar="DAYS",
    type=click.IntRange(1, DAYS_MAX),
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
@click.option(
    "--csv",
    "csv_path",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the incidents as a table for spreadsheets as well.",
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
    csv_path: Path | None,
) -> None:
    r"""Write a page about where the time of JOB, or of all jobs, went.

    One file of HTML that needs nothing else and prints: from all time to training, what each
    failure cost by stage, cause and node, who was suspected and found innocent, what automation did
    not do and why, and what the words mean. The first page is for whoever reads no more.

    \b
    Examples:
      everstep report llama-70b -o llama-70b.html
      everstep report --fleet --last 90 -o quarter.html
      everstep report --fleet --from 2026-10-01 --to 2026-10-31 -o october.html --csv october.csv
    """
    if bool(name) == fleet:
        raise click.UsageError("name one JOB, or say --fleet")
    if ask.as_json:
        command = f"everstep ettr {name}".rstrip()
        raise click.UsageError(f"a report is a page: '{command} --json' has its numbers")
    wanted = day_range(ask.now_ns, begin_ns, last_ns, days or (30 if fleet else None))
    account = _of_days(ask, name, wanted) if wanted else _of_whole_life(ask, name)
    _write(output, _page(account, ask.now_ns))
    if csv_path is not None:
        _write(csv_path, incidents_csv(account.incidents))
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


def _of_whole_life(ask: Ask, name: str) -> Account:
    """Return the account of a job, or of its days where the controller has forgotten it."""
    return _of_job(ask, name) if _is_listed(ask, name) else _of_days(ask, name, _all_days(ask))


def _is_listed(ask: Ask, name: str) -> bool:
    listed = ask.admin.call(lambda stub: stub.ListJobs, admin_pb2.ListJobsRequest()).jobs
    return any(name in (one.job, one.id) for one in listed)


def _all_days(ask: Ask) -> Range:
    today_ns = ask.now_ns // DAY_NS * DAY_NS
    return Range(today_ns - (DAYS_MAX - 1) * DAY_NS, today_ns + DAY_NS)


def _of_job(ask: Ask, name: str) -> Account:
    ledger = ask.admin.call(lambda stub: stub.GetLedger, admin_pb2.GetLedgerRequest(job=name), name)
    detail = ask.admin.call(lambda stub: stub.GetJob, admin_pb2.GetJobRequest(job=name), name)
    life = Range(ledger.begin_ns, ledger.begin_ns + ledger.wall_ns)
    job = detail.summary.id
    rows = _history(ask, "incident", life)
    incidents = incidents_of(rows, ledger.incidents, job, by_nodes=False)
    # The first hour of the clock began before the job did.
    hours = _history(ask, "job-hour", Range(life.begin_ns - _HOUR_NS, life.end_ns), job)
    about = _subjects(name, detail.summary.members, incidents)
    return account_of_life(ledger, detail, Told(incidents, _events(ask, life, about), list(hours)))


def _of_days(ask: Ask, name: str, wanted: Range) -> Account:
    ledger = _ledger(ask, name, "day", wanted)
    rows = _history(ask, "incident", wanted)
    if name:
        detail = admin_pb2.JobDetail()
        if _is_listed(ask, name):
            asked = admin_pb2.GetJobRequest(job=name)
            detail = ask.admin.call(lambda stub: stub.GetJob, asked, name)
        incidents = incidents_of(rows, detail.incidents, name, by_nodes=True)
        about = _subjects(name, detail.summary.members, incidents)
        told = Told(incidents, _events(ask, wanted, about))
    else:
        every = admin_pb2.ListIncidentsRequest()
        current = ask.admin.call(lambda stub: stub.ListIncidents, every).incidents
        told = Told(
            incidents_of(rows, current, by_nodes=True),
            _events(ask, wanted, None),
            accounts=_ledger(ask, name, "account", wanted),
            queues=_ledger(ask, name, "queue", wanted),
        )
    subject = f"Job {name}" if name else "All jobs"
    try:
        return account_of_days(subject, ledger, wanted, told)
    except NoTimeError:
        there_are = days_there_are(_ledger(ask, name, "day", _all_days(ask)))
        raise click.ClickException(f"nothing to report of these days: {there_are}") from None


def _ledger(ask: Ask, name: str, by: str, wanted: Range) -> admin_pb2.FleetLedger:
    """Return the ledger of a range of days."""
    asked = admin_pb2.GetFleetLedgerRequest(
        period=by, periods=wanted.days, job=name, until_ns=wanted.end_ns
    )
    return ask.admin.call(lambda stub: stub.GetFleetLedger, asked, name)


def _subjects(name: str, members: Iterable[str], incidents: Iterable[IncidentAccount]) -> Set[str]:
    """Return whose events are of a job; of one that has ended nobody is a member any more."""
    return frozenset((name, *members, *(one.node for one in incidents if one.node)))


def _history(ask: Ask, kind: str, wanted: Range, key: str = "") -> Iterator[admin_pb2.HistoryRow]:
    """Yield the rows of a time, oldest first; a job that is new may have none yet."""
    asked = admin_pb2.GetHistoryRequest(
        kind=kind, key=key, since_ns=max(0, wanted.begin_ns), until_ns=wanted.end_ns
    )
    yield from ask.admin.stream(lambda stub: stub.GetHistory, asked, key)


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
