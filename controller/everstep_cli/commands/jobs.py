"""Commands about jobs and where their time went."""

import click

from everstep_cli.completion import job_names
from everstep_cli.session import Ask, asks_controller
from everstep_cli.views.jobs import job_list, job_sheet, ledger_sheet
from everstep_cli.views.snapshots import forgotten


def _actions(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [action for action in ("forget",) if action.startswith(incomplete)]


def _not_an_action(name: str, action: str) -> str:
    if name == "forget":
        return f"the name comes first: everstep job {action} forget"
    return f"{action!r} is nothing to do with a job; there is: everstep job {name} forget"


@click.command()
@asks_controller
def jobs(ask: Ask) -> None:
    r"""List all jobs: state, generation, step, nodes, ETTR.

    \b
    Examples:
      everstep jobs
      everstep jobs --json | jq -r '.jobs[].job'
    """
    reply = ask.admin.jobs()
    ask.answer(reply, *job_list(reply.jobs))


@click.command()
@click.argument("name", metavar="NAME", shell_complete=job_names)
@click.argument("action", metavar="[forget]", default="", shell_complete=_actions)
@asks_controller
def job(ask: Ask, name: str, action: str) -> None:
    r"""Show everything known of one job, with its incidents; or forget the memory that it left.

    Nodes keep the snapshots of a job that did not end well in their memory, for half an hour unless
    their configuration says otherwise (memory_kept_s). "forget" drops them at once, on every node;
    'everstep snapshots NAME' shows what there is. Files stay where they are. A job that has not
    ended forgets nothing: it needs its snapshots to recover.

    \b
    Examples:
      everstep job llama-70b
      everstep job llama-70b --json | jq .recoverable_step
      everstep job llama-70b forget
    """
    if action == "forget":
        answer = ask.admin.forget(name)
        ask.answer(answer, *forgotten(answer))
        return
    if action:
        raise click.UsageError(_not_an_action(name, action))
    reply = ask.admin.job(name)
    ask.answer(reply, *job_sheet(reply, ask.now_ns))


@click.command()
@click.argument("name", metavar="JOB", shell_complete=job_names)
@asks_controller
def ettr(ask: Ask, name: str) -> None:
    r"""Account for the time of a job: every second is in exactly one category.

    The categories sum to the wall clock to the nanosecond. ETTR_time counts slow steps as training,
    ETTR_work counts only what they would have taken at the reference time.

    \b
    Examples:
      everstep ettr llama-70b
      everstep ettr llama-70b --json | jq '.incidents[] | {incident, cause, costs}'
    """
    reply = ask.admin.ledger(name)
    ask.answer(reply, *ledger_sheet(reply))
