"""`everstep snapshots`: a job's snapshots, and the step that a restart would go back to."""

import click

from everstep_cli import encode
from everstep_cli.completion import job_names, node_names
from everstep_cli.session import Ask, asks_controller
from everstep_cli.views.snapshots import copy_lines, snapshot_sheet


@click.command()
@click.argument("name", metavar="JOB", shell_complete=job_names)
@click.option("--copies", is_flag=True, help="List single copies instead, each on a line.")
@click.option("--step", type=click.IntRange(0, 2**63 - 1), help="With --copies: only of this step.")
@click.option(
    "--node", default="", help="With --copies: only on this node.", shell_complete=node_names
)
@asks_controller
def snapshots(ask: Ask, name: str, copies: bool, step: int | None, node: str) -> None:
    r"""Show the snapshots of JOB: every step, where its copies are, and which would be restored.

    The step with the arrow is what the job would go back to if it stopped now; above it stands why
    not to a newer one. Copies are counted in parts of the state, equal copies once, in the order
    in which a restore takes them: own memory, peer memory, local disk, shared storage.

    \b
    A step is
      whole        every part has a verified copy that can be reached
      partial      some part has none (yet)
      probation    the job was restored from it, and has not got far since
      blacklisted  the job crashed twice soon after that: an older step is taken
      abandoned    the job went back to an older step: not its past any more

    \b
    Examples:
      everstep snapshots llama-70b
      everstep snapshots llama-70b --copies --step 1200
      everstep snapshots llama-70b --copies --node gpu-0042 --json | jq -r .root_hash
      watch -n 1 everstep snapshots llama-70b
    """
    if not copies:
        if step is not None or node:
            raise click.UsageError("--step and --node choose among single copies: give --copies")
        reply = ask.admin.snapshots(name)
        ask.answer(reply, *snapshot_sheet(reply, ask.now_ns))
        return
    found = ask.admin.copies(name, step, node)
    if ask.as_json:
        for copy in found:
            click.echo(encode.to_line(copy))
        return
    for line in copy_lines(found):
        ask.console.out(line, highlight=False)
