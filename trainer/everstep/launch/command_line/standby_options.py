"""Standby options of ``everstep run``: processes kept warm for the next generation's ranks."""

import argparse

from everstep.launch.command_line.snapshot_options import size_bytes
from everstep.launch.standby.pool import StandbyOptions


def add_standby_options(parser: argparse.ArgumentParser) -> None:
    """Let a parser know them."""
    group = parser.add_argument_group(
        "warm standbys",
        "For each rank, also on spares, a process waits that has imported the modules\n"
        "that ranks of this job import. A restart uses it. It runs nothing of the\n"
        "script in advance.",
    )
    add = group.add_argument
    add(
        "--standby",
        choices=("imports", "device", "none"),
        default="imports",
        help="imports: modules only; device: also open the GPU, which takes memory there; none: a"
        " restart starts new processes (default imports)",
    )
    add(
        "--standby-imports",
        metavar="A,B",
        default="",
        help="modules to import, instead of those that ranks import",
    )
    add(
        "--standby-memory",
        metavar="SIZE",
        default="4GiB",
        help="memory limit of each; when one exceeds it, all are ended (default 4GiB)",
    )


def standby_options(values: argparse.Namespace) -> StandbyOptions:
    """Return the options. Raises KeepError."""
    names = (name.strip() for name in values.standby_imports.split(","))
    return StandbyOptions(
        enabled=values.standby != "none",
        modules=tuple(name for name in names if name),
        memory_bytes=size_bytes("--standby-memory", values.standby_memory),
        device=values.standby == "device",
    )
