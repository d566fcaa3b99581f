"""Commands about jobs: their state, their snapshots, and where their time went."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import click
from rich.text import Text

from everstep_cli.commands.completion import job_names, node_names
from everstep_cli.commands.day_range import day_range, from_option, to_option
from everstep_cli.commands.node_lists import all_named_nodes
from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.commands.several_nodes import refuse_unknown
from everstep_cli.report.from_admin import Range
from everstep_cli.views import json_output
from everstep_cli.views.fleet_ledger import (
    LEDGER_DIMENSIONS,
    fleet_ledger_csv,
    fleet_ledger_sheet,
)
from everstep_cli.views.jobs import job_list, job_sheet, ledger_sheet, published_sheet
from everstep_cli.views.nodes import halt
from everstep_cli.views.ranks import rank_lines, rank_sheet
from everstep_cli.views.slowness import slowness_sheet
from everstep_cli.views.snapshots import copy_lines, forgotten, snapshot_sheet
from everstep_cli.views.stacks import stacks_sheet
from everstep_common.codec import json_text
from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.looks import moving_job
from everstep_common.hangs.node_reports import NodeTold, ToldByNodes, read_all
from everstep_common.hangs.reports.verdict import HangClass
from everstep_common.printable import printable
from everstep_proto.generated import admin_pb2

_PLANNED = ("restart", "stop")
_ACTIONS = ("forget", "ranks", "restart", "slow", "stacks", "stop")


def _actions(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [action for action in _ACTIONS if action.startswith(incomplete)]


def _not_an_action(name: str, action: str) -> str:
    if name in _ACTIONS:
        return f"the name comes first: everstep job {action} {name}"
    known = ", ".join(f"everstep job {name} {one}" for one in _ACTIONS)
    return f"{action!r} is nothing to do with a job; there is: {known}"


@click.command()
@asks_controller
def jobs(ask: Ask) -> None:
    r"""List all jobs: state, generation, step, nodes, ETTR.

    \b
    Examples:
      everstep jobs
      everstep jobs --json | jq -r '.jobs[].job'
    """
    reply = ask.admin.call(lambda stub: stub.ListJobs, admin_pb2.ListJobsRequest())
    ask.answer(reply, *halt(reply.halted), *job_list(reply.jobs))


_JOB_HELP = r"""Show one job, its ranks or their stacks, restart it, stop it, or free its memory.

Nodes keep the snapshots of a failed or cancelled job in memory for memory_kept_s (half an hour
by default). "forget" frees them now, on every node; 'everstep snapshots NAME' lists them. Files
in storage stay. It is refused for a job that has not ended.

"ranks" shows of each rank its node, the number of its process as the launcher there sees it
(and not that of a loader's worker), and the PCI addresses of the accelerators that it has open.
With --json each is a line. The launchers look, as for "stacks".

"restart" restarts the ranks of a running job with the script on disk, for new code or another
configuration. It stops them after a step that can be restored, so at most the one step is made
again that ranks make while that one is saved. Until then 'everstep job NAME' shows what it
waits for, and "restart --cancel" cancels it.

"stop" ends a job for good in the same way: after a step that can be restored, or at once where
it makes no steps. Its launchers end, its last step is brought to storage if it has any, and its
time from then on is planned. Started again under its name, it goes on from there.

"slow" shows who of its ranks makes the others wait, how much, since which step and what its
node has found, or that nobody does, and where the work is uneven. Of a script that tells
nothing it shows who comes last to collectives, by torch's recorder; one that tells when a rank
waits ('with everstep.waiting():' around its collectives) is judged by all its steps. Nothing is
done on that alone: to have a spare take the place of a node, 'everstep drain NODE'. It is for
operators, and for the job's user.

"stacks" shows what the ranks do at this moment: their Python stacks merged, so that the rank
that does something else stands out, and whose process is stopped or held in the kernel. The
launchers look, as the job's user; a rank stands still for some milliseconds meanwhile. It is
for operators, and for the job's user.

\b
Examples:
  everstep job llama-70b
  everstep job llama-70b --json | jq .recoverable_step
  everstep job llama-70b forget
  everstep job llama-70b ranks
  everstep job llama-70b ranks --json | jq 'select(.rank == 3) | .node, .pid'
  everstep job llama-70b restart --at-step 5000 --reason "new learning rate"
  everstep job llama-70b restart --cancel
  everstep job llama-70b slow
  everstep job llama-70b stacks
  everstep job llama-70b stop --reason "the budget is spent"
"""


@click.command(help=_JOB_HELP)
@click.argument("name", metavar="NAME", shell_complete=job_names)
@click.argument(
    "action",
    metavar="[forget|ranks|restart|slow|stacks|stop]",
    default="",
    shell_complete=_actions,
)
@click.option("--at-step", type=click.IntRange(0, 2**63 - 1), help="Last step before that.")
@click.option("--cancel", is_flag=True, help="Cancel a planned restart or stop.")
@click.option("--reason", default="", help="Of a restart or stop; kept in the audit log.")
@click.option("--all", "every", is_flag=True, help="Each finding, also those of one cause.")
@asks_controller
def job(
    ask: Ask,
    name: str,
    action: str,
    at_step: int | None,
    cancel: bool,
    reason: str,
    every: bool,
) -> None:
    """Show one job, or do something to it or its ranks: see its help."""
    _refuse_options(action, planned=at_step is not None or cancel or bool(reason), every=every)
    if cancel:
        _cancel(ask, name, at_step, reason)
    elif action in _PLANNED:
        _restart_or_stop(ask, name, action, at_step, reason)
    elif action in _OF_ONE_JOB:
        _OF_ONE_JOB[action](ask, name)
    elif action:
        raise click.UsageError(_not_an_action(name, action))
    else:
        asked = admin_pb2.GetJobRequest(job=name)
        reply = ask.admin.call(lambda stub: stub.GetJob, asked, name)
        ask.answer(reply, *job_sheet(reply, ask.now_ns, every=every))


def _refuse_options(action: str, *, planned: bool, every: bool) -> None:
    """Refuse options of another action."""
    if planned and action not in _PLANNED:
        raise click.UsageError(
            "--at-step, --cancel, --reason are for: everstep job NAME restart, or stop"
        )
    if every and action:
        raise click.UsageError("--all is for: everstep job NAME")


def _stacks(ask: Ask, name: str) -> None:
    if ask.as_json:
        for node in _inspected(ask, name):
            click.echo(json_output.to_line(node))
        return
    seen = _look_at_ranks(ask, name)
    verdict = judge(seen.reports, seen.world_size)
    goes_on = ""
    if verdict.kind is not HangClass.NO_WAIT:  # who is last at one moment holds nobody back by that
        goes_on = moving_job(seen.reports, _look_at_ranks(ask, name).reports, verdict)
    for part in stacks_sheet(seen, verdict, goes_on):
        ask.console.print(part)


def _ranks(ask: Ask, name: str) -> None:
    seen = _look_at_ranks(ask, name)
    if not ask.as_json:
        for part in rank_sheet(seen):
            ask.console.print(part)
        return
    for line in rank_lines(seen):
        click.echo(json_text(line))
    for missing in dict.fromkeys(seen.missing):
        click.echo(f"not seen: {printable(missing)}", err=True)


def _slow(ask: Ask, name: str) -> None:
    asked = admin_pb2.GetSlownessRequest(job=name)
    slowness = ask.admin.call(lambda stub: stub.GetSlowness, asked, name)
    ask.answer(slowness, *slowness_sheet(slowness))


def _forget(ask: Ask, name: str) -> None:
    order = admin_pb2.ForgetJobRequest(job=name)
    answer = ask.admin.call(lambda stub: stub.ForgetJob, order, name)
    ask.answer(answer, *forgotten(answer))


# What needs nothing but the job's name.
_OF_ONE_JOB: Mapping[str, Callable[[Ask, str], None]] = MappingProxyType(
    {"forget": _forget, "ranks": _ranks, "slow": _slow, "stacks": _stacks}
)


def _look_at_ranks(ask: Ask, name: str) -> ToldByNodes:
    return read_all(
        NodeTold(node.node, node.first_rank, node.ranks, tuple(node.reports), node.missing)
        for node in _inspected(ask, name)
    )


def _inspected(ask: Ask, name: str) -> Iterator[admin_pb2.NodeInspection]:
    request = admin_pb2.InspectJobRequest(job=name)
    return ask.admin.stream(lambda stub: stub.InspectJob, request, name)


def _restart_or_stop(ask: Ask, name: str, action: str, at_step: int | None, reason: str) -> None:
    if not reason:
        raise click.UsageError(f"say why: everstep job {name} {action} --reason TEXT")
    reply: admin_pb2.StopJobReply | admin_pb2.RestartJobReply
    if action == "stop":
        stop = admin_pb2.StopJobRequest(job=name, at_step=at_step, reason=reason)
        reply = ask.admin.call(lambda stub: stub.StopJob, stop, name)
    else:
        restart = admin_pb2.RestartJobRequest(job=name, at_step=at_step, reason=reason)
        reply = ask.admin.call(lambda stub: stub.RestartJob, restart, name)
    ask.answer(reply, Text.assemble((reply.job, "bold"), f": {reply.plan}"))


def _cancel(ask: Ask, name: str, at_step: int | None, reason: str) -> None:
    if at_step is not None:
        raise click.UsageError("--cancel cancels whichever is planned: leave out --at-step")
    request = admin_pb2.CancelRestartRequest(job=name, reason=reason)
    reply = ask.admin.call(lambda stub: stub.CancelRestart, request, name)
    ask.answer(reply, Text.assemble((reply.job, "bold"), f": {reply.plan}"))


@click.command()
@click.argument("name", metavar="[JOB]", default="", shell_complete=job_names)
@click.option(
    "--by",
    "period",
    type=click.Choice(LEDGER_DIMENSIONS),
    help="By what time is told apart: periods in UTC, jobs, queues and accounts; or what incidents "
    "have cost by cause, node, device and generation. [default: day]",
)
@click.option(
    "--last",
    "periods",
    metavar="N",
    type=click.IntRange(1, 400),
    help="So many periods, or days. [default: 14]",
)
@from_option
@to_option
@click.option(
    "--published",
    is_flag=True,
    help="Of a job: what others would call its ratio, each with its definition.",
)
@click.option("--csv", "as_csv", is_flag=True, help="With --by: a table for spreadsheets.")
@asks_controller
def ettr(
    ask: Ask,
    name: str,
    period: str | None,
    periods: int | None,
    begin_ns: int | None,
    last_ns: int | None,
    published: bool,
    as_csv: bool,
) -> None:
    r"""Account for the time of a job: every second is in exactly one category.

    The categories sum to the wall clock to the nanosecond. ETTR_time counts slow steps as training,
    ETTR_work counts only what they would have taken at the reference time. Without JOB, or with
    --by, it is told from the history: of all jobs, in which a job on 8 nodes counts 8 times, or of
    one, by period, job, queue, account, cause, node, device or generation.

    \b
    Examples:
      everstep ettr llama-70b
      everstep ettr llama-70b --published
      everstep ettr llama-70b --json | jq '.incidents[] | {incident, cause, costs}'
      everstep ettr
      everstep ettr --by month --last 3
      everstep ettr --by cause --last 90
      everstep ettr llama-70b --by generation
      everstep ettr --by account --from 2026-10-01 --to 2026-10-31 --csv > october.csv
    """
    wanted = _ledger_days(ask, period, periods, begin_ns, last_ns)
    if name and not (period or periods or as_csv or wanted):
        request = admin_pb2.GetLedgerRequest(job=name)
        reply = ask.admin.call(lambda stub: stub.GetLedger, request, name)
        ask.answer(reply, *(published_sheet(reply) if published else ledger_sheet(reply)))
        return
    if published:
        raise click.UsageError("--published is of a job, without --by and --last: name one")
    asked = admin_pb2.GetFleetLedgerRequest(
        period=period or "day",
        periods=wanted.days if wanted else periods or 14,
        job=name,
        until_ns=wanted.end_ns if wanted else 0,
    )
    fleet = ask.admin.call(lambda stub: stub.GetFleetLedger, asked, name)
    if as_csv and not ask.as_json:
        click.echo(fleet_ledger_csv(fleet), nl=False)
        return
    ask.answer(fleet, *fleet_ledger_sheet(fleet))


def _ledger_days(
    ask: Ask, period: str | None, periods: int | None, begin_ns: int | None, last_ns: int | None
) -> Range | None:
    """Return the days from one to another that a ledger is asked of; None without them."""
    if begin_ns is None and last_ns is None:
        return None
    if periods is not None or period in ("week", "month"):
        raise click.UsageError("--from and --to are of days: leave out --last, and weeks or months")
    return day_range(ask.now_ns, begin_ns, last_ns, None)


@click.command()
@click.argument("name", metavar="JOB", shell_complete=job_names)
@click.option("--copies", is_flag=True, help="List single copies instead, one on a line.")
@click.option("--step", type=click.IntRange(0, 2**63 - 1), help="With --copies: only of this step.")
@click.option(
    "--node",
    "nodes",
    metavar="NODES",
    multiple=True,
    callback=all_named_nodes,
    help="With --copies: only on these nodes; also several times.",
    shell_complete=node_names,
)
@asks_controller
def snapshots(ask: Ask, name: str, copies: bool, step: int | None, nodes: list[str]) -> None:
    r"""Show the snapshots of JOB: every step, where its copies are, and which would be restored.

    The arrow marks the step that the job would go back to if it stopped now; "not newer" says why
    it is not a newer one. Each place shows how many parts of the state it has, in the order in
    which a restore prefers them: own memory, peer memory, local disk, shared storage.

    \b
    A step is
      complete     every part has a verified copy that can be reached
      partial      some part has none (yet)
      probation    the job was restored from it, and has made few steps since
      blacklisted  the job crashed twice soon after a restore: an older step is used
      abandoned    the job went back to an older step: it is never restored

    \b
    Examples:
      everstep snapshots llama-70b
      everstep snapshots llama-70b --copies --step 1200 --node 'gpu-[0001-0016]'
      everstep snapshots llama-70b --copies --node gpu-0042 --json | jq -r .root_hash
      watch -n 1 everstep snapshots llama-70b
    """
    if not copies:
        if step is not None or nodes:
            raise click.UsageError("--step and --node select single copies: add --copies")
        request = admin_pb2.GetSnapshotsRequest(job=name)
        reply = ask.admin.call(lambda stub: stub.GetSnapshots, request, name)
        ask.answer(reply, *snapshot_sheet(reply, ask.now_ns))
        return
    found = _copies(ask, name, step, nodes)
    if ask.as_json:
        for copy in found:
            click.echo(json_output.to_line(copy))
        return
    for line in copy_lines(found):
        ask.console.out(line, highlight=False)


def _copies(
    ask: Ask, name: str, step: int | None, nodes: list[str]
) -> Iterator[admin_pb2.CopyLine]:
    wanted, several = frozenset(nodes), len(nodes) > 1
    if several:
        refuse_unknown(ask, nodes)
    asked = admin_pb2.ListCopiesRequest(job=name, step=step, node="" if several else "".join(nodes))
    for copy in ask.admin.stream(lambda stub: stub.ListCopies, asked, name):
        if not several or copy.node in wanted:
            yield copy


@click.command()
@click.argument("name", metavar="JOB", shell_complete=job_names)
@click.option("--rank", type=click.IntRange(0, 2**31 - 1), help="Only of this rank.")
@click.option("--follow", "-f", is_flag=True, help="Wait for what comes, until the job ends.")
@asks_controller
def logs(ask: Ask, name: str, rank: int | None, follow: bool) -> None:
    r"""Show what the ranks of JOB wrote lately, also after their terminal was closed.

    The agent of each node keeps the newest lines of each rank in memory until it is restarted, and
    those of the last jobs that are over. 'everstep run --logs DIR' keeps all of them in files. It
    is for operators, and for the job's user. What would steer a terminal is written out: \x1b.

    \b
    Examples:
      everstep logs llama-70b --rank 0 --follow
      everstep logs llama-70b | grep -i nan
      everstep logs llama-70b --json | jq -r 'select(.rank == 3).lines[]'
    """
    request = admin_pb2.ReadLogsRequest(job=name, rank=rank, follow=follow)
    for told in ask.admin.stream(lambda stub: stub.ReadLogs, request, name, endless=follow):
        if ask.as_json:
            click.echo(json_output.to_line(told))
            continue
        if told.note:
            click.echo(told.note, err=True)
        for line in told.lines:
            click.echo(f"[{told.rank}] {line}" if rank is None else line)


COMMANDS = (jobs, job, logs, snapshots, ettr)
