"""Standby options of ``everstep run``: processes kept warm for the next generation's ranks."""

import argparse

from everstep.launch.command_line.snapshot_options import size_bytes
from everstep.launch.standby.pool import StandbyOptions


def add_standby_options(parser: argparse.ArgumentParser) -> None:
    """Let a parser know them."""
    group = parser.add_argument_group(
        "warm standbys",
        "For each rank a process waits that has imported what ranks have been seen to import, on "
        "spares as well: a restart costs no imports. It runs none of the script before.",
    )
    add = group.add_argument
    add(
        "--standby",
        choices=("imports", "device", "none"),
        default="imports",
        help="device: they open their GPU too, which takes memory there; none: a restart starts"
        " new processes (default imports)",
    )
    add(
        "--standby-imports",
        metavar="A,B",
        default="",
        help="modules to import instead of those seen",
    )
    add(
        "--standby-memory",
        metavar="SIZE",
        default="4GiB",
        help="the most that one may take; beyond it there are none (default 4GiB)",
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
