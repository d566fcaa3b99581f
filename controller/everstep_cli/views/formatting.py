"""Formatting of numbers, sizes and times as people read them."""

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.text import Text

from everstep_common.node_lists import fold

_NS = 1_000_000_000

_STATE_STYLES = {
    "healthy": "green",
    "running": "green",
    "ended": "dim",
    "succeeded": "green",
    "failed": "bold red",
    "replaced": "dim",
    "lost": "bold red",
    "repairing": "red",
    "suspect": "yellow",
    "stalled": "yellow",
    "fatal": "bold red",
    "degraded": "yellow",
    "retired": "dim",
    "over": "dim",
    "cancelled": "dim",
}


def state(word: str) -> Text:
    """Return the name of a state or severity in its colour."""
    return Text(word, style=state_style(word))


def state_style(word: str) -> str:
    """Return the colour of a state or severity."""
    return _STATE_STYLES.get(word, "cyan")


def duration(ns: int) -> str:
    """Return how long, in at most two units: "8 s", "3 m 20 s", "2 d 4 h"."""
    seconds = max(0, ns) // _NS
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} m {seconds % 60} s"
    if seconds < 86_400:
        return f"{seconds // 3600} h {seconds % 3600 // 60} m"
    return f"{seconds // 86_400} d {seconds % 86_400 // 3600} h"


def count(number: int, noun: str) -> str:
    """Return a number of things: "1 restart", "2 processes"."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}{'es' if noun.endswith('s') else 's'}"


def seconds(ns: int) -> str:
    """Return a cost in seconds, to the millisecond."""
    return f"{ns / _NS:,.3f}"


def clock(ns: int) -> str:
    """Return the time of day, UTC, to the millisecond; with the date it would crowd the list."""
    at = datetime.fromtimestamp(ns // _NS, UTC)
    return f"{at:%H:%M:%S}.{ns // 1_000_000 % 1000:03d}"


def size(count: int) -> str:
    """Return a size in binary units, as memory and disks are counted by their users."""
    value, units = float(count), ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    index = 0
    while value >= 1024 and index < len(units) - 1:
        value, index = value / 1024, index + 1
    return (
        f"{value:.0f} {units[index]}"
        if value >= 10 or index == 0
        else f"{value:.1f} {units[index]}"
    )


def speed(bits_per_s: int) -> str:
    """Return the speed of a link."""
    if bits_per_s == 0:
        return "-"
    giga = bits_per_s / 1e9
    return f"{giga:g} Gbit/s" if giga >= 1 else f"{bits_per_s / 1e6:g} Mbit/s"


def names(nodes: Sequence[str]) -> str:
    """Return node names as Slurm folds them, in their order: "node-[1-4,9],login"; "-" for none."""
    return fold(nodes) or "-"
