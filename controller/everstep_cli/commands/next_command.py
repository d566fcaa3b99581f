"""Next command: what to type after a command line that was wrong.

A command that there is by another name is named, and for an argument that is missing the command
that lists what may stand there.
"""

from collections.abc import Mapping
from types import MappingProxyType

import click

_HELP = "'everstep help' lists all commands"
_NODES, _JOBS = "'everstep nodes' lists nodes", "'everstep jobs' lists jobs"
_BOTH = "'everstep nodes' lists nodes, 'everstep jobs' jobs"
_OF_A_JOB = "'everstep job NAME {}' does that to a job"
_LEDGER = "the ledger of a job is 'everstep ettr JOB', that of all jobs 'everstep ettr'"
_RULES = (
    "'everstep findings' lists what the rules have found, 'everstep why NAME' says which one"
    " decided; docs/signals.md has all of them, docs/fleet.md the alerts"
)
_LOG = "'everstep-agent read-log FILE' finds the faults of a node in a saved kernel log"
_STATE = "'everstep nodes' and 'everstep jobs' show how all is, 'everstep why NAME' why"

# Words for what other commands do: of this product, of schedulers and of services.
_MEANT: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("ledger", "account", "accounting", "time", "goodput"), _LEDGER),
        **dict.fromkeys(("rules", "rule", "alerts", "signals", "conditions"), _RULES),
        **dict.fromkeys(("status", "state", "show", "list", "top"), _STATE),
        **dict.fromkeys(("read-log", "dmesg", "xid", "xids"), _LOG),
        **dict.fromkeys(("cordon", "offline"), "'everstep drain NODES --reason TEXT' does that"),
        **dict.fromkeys(("uncordon", "undrain", "online"), "'everstep release NODES' does that"),
        **dict.fromkeys(("stacks", "ranks"), "'everstep job NAME {}' shows them"),
        **dict.fromkeys(("restart", "stop", "forget"), _OF_A_JOB),
        **dict.fromkeys(("cancel", "kill"), _OF_A_JOB.format("stop")),
    }
)
# What an argument is called, and what lists that; a command of its own comes first.
_LISTED_BY: Mapping[str, str] = MappingProxyType(
    {"NODES": _NODES, "NODE": _NODES, "JOB": _JOBS, "NAME": _BOTH}
)
_LISTED_BY_OF: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("job", "NAME"): _JOBS,
        ("cancel", "ID"): "'everstep maintenance list' shows which windows there are",
    }
)
# Lists that take no name, and what shows one of them.
_OF_ONE: Mapping[str, str] = MappingProxyType(
    {
        "jobs": "'everstep job {}' shows one job",
        "findings": "'everstep findings --node {}' lists those of a node",
        "incidents": "'everstep why {}' shows those of a node or job",
        "events": "'everstep events --subject {}' lists those of a node or job",
        "ettr": "one job at a time, or none for the fleet",
        "snapshots": "one job at a time",
        "logs": "one job at a time; 'everstep logs JOB --rank N' shows a rank's",
        "why": "one name at a time",
    }
)


class Commands(click.Group):
    """A group that names its commands, in the order they were added in, for a word that is none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See click.Group."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is meant; say what else may have been."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(self._instead(ctx, args[0], error), ctx) from error

    def _instead(self, ctx: click.Context, word: str, error: click.UsageError) -> str:
        if ctx.parent is not None:
            there = ", ".join(f"{ctx.command_path} {name}" for name in self.list_commands(ctx))
            return f"No such command {word!r}; there is: {there}"
        if word in _MEANT:
            return f"No such command {word!r}; {_MEANT[word].format(word)}"
        guessed = getattr(error, "possibilities", None)  # newer versions of click have it
        return error.format_message() if guessed else f"No such command {word!r}; {_HELP}"


def next_command(error: click.UsageError) -> str:
    """Return what to type for an argument that is missing or too much; "" where nothing helps."""
    command = error.ctx.info_name or "" if error.ctx is not None else ""
    if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Argument):
        name = (error.param.metavar or "").partition(" ")[0].rstrip(".")
        return _LISTED_BY_OF.get((command, name), _LISTED_BY.get(name, ""))
    if error.message.startswith("Got unexpected extra argument"):
        extra = error.message.partition("(")[2].rstrip(")").split(" ")[0]
        return _OF_ONE.get(command, "").format(extra)
    return ""
