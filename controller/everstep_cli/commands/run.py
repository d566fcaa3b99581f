"""`everstep run` in the list of commands; the package of the launcher runs it, not this one."""

import click


@click.command(context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(arguments: tuple[str, ...]) -> None:
    r"""Start a training script on this node ('everstep run --help').

    \b
    Example:
      everstep run --job NAME --nnodes 3:4 --nproc-per-node 1 -- python train.py
    """
    raise click.UsageError("'everstep run' is the launcher; start it as the command 'everstep'")
