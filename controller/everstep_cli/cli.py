"""The command group `everstep`: its commands, listed in the order in which one needs them."""

import click

from everstep_cli.commands.demo import demo
from everstep_cli.commands.inject import inject
from everstep_cli.commands.jobs import ettr, job, jobs
from everstep_cli.commands.maintenance import maintenance
from everstep_cli.commands.nodes import events, findings, incidents, node, nodes, why
from everstep_cli.commands.operate import isolate, pause, release, resume
from everstep_cli.commands.plan import drain
from everstep_cli.commands.run import run
from everstep_cli.commands.snapshots import snapshots
from everstep_cli.commands.version import version
from everstep_cli.completion import completion


class _InOrder(click.Group):
    """A group that lists its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"]})
def everstep() -> None:
    r"""Keep training jobs stepping through every failure, and account for every second lost.

    \b
    First steps:
      everstep demo                      the whole loop on this machine, in a minute
      everstep nodes                     what the controller knows of every node
      everstep why NAME                  why a node or job is in its state
      everstep snapshots JOB             what a job would go back to, and where that is
      everstep ettr JOB                  where the time of a job went

    Every command takes --json and --controller HOST:PORT (or EVERSTEP_CONTROLLER), and ends with
    0 when it was done, 1 when the controller could not be asked or said no, 2 when the command line
    was wrong or a name is unknown.
    """


for _command in (
    demo, nodes, node, why, findings, incidents, events, jobs, job, snapshots, ettr,
    drain, maintenance, isolate, release, pause, resume, inject, run, version, completion,
):  # fmt: skip
    everstep.add_command(_command)

# A raw docstring has two characters where click looks for the one that keeps lines as they are.
for _shown in (everstep, *everstep.commands.values(), *maintenance.commands.values()):
    _shown.help = (_shown.help or "").replace(r"\b", "\b")
