"""Commands about jobs and where their time went."""

import click

from everstep_cli.completion import job_names
from everstep_cli.session import Ask, asks_controller
from everstep_cli.views.jobs import job_list, job_sheet, ledger_sheet


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
@asks_controller
def job(ask: Ask, name: str) -> None:
    r"""Show everything known of one job, with its incidents.

    \b
    Examples:
      everstep job llama-70b
      everstep job llama-70b --json | jq .recoverable_step
    """
    reply = ask.admin.job(name)
    ask.answer(reply, *job_sheet(reply))


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
